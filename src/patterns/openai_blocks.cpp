// In: a BlockLayout, or a mask; out: a Selection, or a BlockLayout.
#include "patterns/openai_blocks.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "ir/interpret.h"
#include "layout/block_kinds.h"

namespace treadle::patterns {
namespace {

using layout::BlockKind;
using layout::blocks_of;
using layout::Extent;
using layout::Mask;
using layout::Selection;
using layout::Stretch;
using layout::Tails;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// The lowest `count` bits of a word.
std::uint64_t low_bits(std::int64_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

void check_length(std::string_view what, std::int64_t length, std::int64_t blocks,
                  std::int64_t block_size) {
  if (blocks_of(length, block_size) != blocks) {
    base::fail("block layout: {} {} in blocks of {} make {}, the layout has {}", length, what,
               block_size, blocks_of(length, block_size), blocks);
  }
}

// --- out ----------------------------------------------------------------------------------------

// Makes blocks present that show nothing, the first ones, until the head has `wanted`.
void pad(std::span<std::uint8_t> present, std::int64_t wanted) {
  std::int64_t missing = wanted - std::ranges::count(present, 1);
  for (std::uint8_t& block : present) {
    if (missing == 0) return;
    if (block != 0) continue;
    block = 1;
    --missing;
  }
}

// One word per query of a block: bit j is key j.
std::vector<std::uint64_t> evaluate(const Mask& mask, const Extent& extent, std::int64_t head,
                                    std::int64_t first_query, std::int64_t first_key,
                                    std::int64_t size) {
  const std::int64_t rows = std::min(size, extent.queries.count() - first_query);
  const std::int64_t columns = std::min(size, extent.keys.count() - first_key);
  std::vector<std::int64_t> q, kv;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    q.push_back(first_query + i / columns);
    kv.push_back(first_key + i % columns);
  }
  ir::Interpreter<double> run(mask.graph, mask.memory);
  const std::int64_t batch = 0;
  run({.b = {&batch, 1}, .h = {&head, 1}, .q = q, .kv = kv}, rows * columns);
  std::vector<std::uint64_t> words(at(size), 0);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    if (!run.poison(0).empty() && run.poison(0)[at(i)] != 0) {
      base::fail_mod("block layout: the mask fails at head {}, q {}, kv {}: {}", head, q[at(i)],
                     kv[at(i)], run.poison_reason(0, i));
    }
    const bool visible = run.booleans(0)[at(i)] != 0;
    words[at(i / columns)] |= static_cast<std::uint64_t>(visible) << (i % columns);
  }
  return words;
}

}  // namespace

Selection from_block_layout(const BlockLayout& layout, const Extent& extent) {
  layout.check();
  const std::int64_t size = layout.block_size;
  check_length("queries", extent.queries.count(), layout.query_blocks, size);
  check_length("keys", extent.keys.count(), layout.key_blocks, size);
  if (layout.heads != extent.heads) {
    base::fail("block layout: it is for {} heads, there are {}", layout.heads, extent.heads);
  }
  const std::vector<std::uint64_t> words =
      layout.mask ? mask_words(layout) : std::vector<std::uint64_t>();
  auto word = words.begin();
  auto present = layout.present.begin();
  std::vector<std::vector<Stretch>> stretches;
  for (std::int64_t row = 0; row < layout.lut_heads * layout.query_blocks; ++row) {
    auto& list = stretches.emplace_back();
    const std::int64_t first_query = row % layout.query_blocks * size;
    for (std::int64_t begin = 0; begin < layout.key_blocks * size; begin += size) {
      if (*present++ == 0) continue;
      const std::int64_t end = std::min(begin + size, extent.keys.count());
      bool all_visible = true;
      if (layout.mask) {
        const std::uint64_t all = low_bits(end - begin);
        all_visible = std::all_of(word, word + std::min(size, extent.queries.count() - first_query),
                                  [&](std::uint64_t bits) { return (bits & all) == all; });
        word += size;
      }
      list.push_back({.begin = begin, .end = end, .skip_mask = all_visible});
    }
  }
  return {extent, size, false, layout.lut_heads > 1, std::move(stretches)};
}

BlockLayout to_block_layout(const Mask& mask, std::int64_t heads, std::int64_t queries,
                            std::int64_t keys, std::int64_t block_size, Executor& executor) {
  BlockLayout result{.block_size = block_size, .heads = heads};
  result.check();  // of the size and the heads, before they are used
  if (mask.graph.uses(ir::Input::b)) {
    base::fail("block layout: the mask mentions the batch; a block layout is the same for all");
  }
  const Extent extent{.batch = 1, .heads = heads, .queries = queries, .keys = keys};
  const layout::Layout runs =
      layout::build(mask, extent, layout::Tiles({}, queries, block_size), executor);
  result.lut_heads = runs.per_head() ? heads : 1;
  result.query_blocks = runs.tiles().count();
  result.key_blocks = blocks_of(keys, block_size);

  std::vector<BlockKind> kinds;
  std::int64_t most = 0;
  for (std::int64_t head = 0; head < result.lut_heads; ++head) {
    const auto here = block_kinds(runs, 0, head, block_size, Tails::hidden);
    most = std::max<std::int64_t>(
        most, std::ranges::count_if(here, [](BlockKind kind) { return kind != BlockKind::empty; }));
    kinds.insert(kinds.end(), here.begin(), here.end());
  }
  for (const BlockKind kind : kinds) result.present.push_back(kind == BlockKind::empty ? 0 : 1);
  const std::int64_t per_head = result.query_blocks * result.key_blocks;
  for (std::int64_t head = 0; head < result.lut_heads; ++head) {
    pad(std::span(result.present).subspan(at(head * per_head), at(per_head)), most);
  }

  std::vector<std::int64_t> blocks;  // all that are present, in the order of their numbers
  bool all_full = true;
  for (std::int64_t i = 0; i < result.lut_heads * per_head; ++i) {
    if (result.present[at(i)] == 0) continue;
    blocks.push_back(i);
    all_full = all_full && kinds[at(i)] == BlockKind::full;
  }
  if (all_full) return result;
  const auto count = static_cast<std::int64_t>(blocks.size());
  const auto words = std::make_shared<std::vector<std::uint64_t>>(at(count * block_size), 0);
  base::parallel_for(executor, count, [&](std::int64_t n) {
    const std::int64_t i = blocks[at(n)];
    const auto to = words->begin() + n * block_size;
    if (kinds[at(i)] == BlockKind::full) std::fill_n(to, block_size, low_bits(block_size));
    if (kinds[at(i)] != BlockKind::partial) return;
    const std::int64_t cell = i % per_head;
    std::ranges::copy(evaluate(mask, extent, i / per_head, cell / result.key_blocks * block_size,
                               cell % result.key_blocks * block_size, block_size),
                      to);
  });
  result.mask = [words, most, block_size](const BlockCell& cell) {
    const std::int64_t row = (cell.head * most + cell.block) * block_size + cell.row;
    return ((*words)[at(row)] >> cell.column & 1) != 0;
  };
  return result;
}

}  // namespace treadle::patterns
