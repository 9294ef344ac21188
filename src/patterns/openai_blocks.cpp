// Reads OpenAI's block layouts as selections of keys.
//
// In: which blocks are present, and which pairs inside them. Out: the keys of each row of blocks,
// checked against the mask. The way out is in block_words.cpp.
#include "patterns/openai_blocks.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "base/parallel.h"
#include "ir/interpret.h"
#include "layout/block_kinds.h"

namespace treadle::patterns {
namespace {

using base::at;
using layout::blocks_of;
using layout::Extent;
using layout::Mask;
using layout::Run;

void check_length(std::string_view what, std::int64_t length, std::int64_t blocks,
                  std::int64_t block_size) {
  if (blocks_of(length, block_size) != blocks) {
    base::fail("layout: {} {} in blocks of {} make {}, the block layout has {}", length, what,
               block_size, blocks_of(length, block_size), blocks);
  }
}

struct Pair {
  std::int64_t b, h, q, kv;

  auto operator<=>(const Pair&) const = default;
};

// The pairs of one row of blocks that are hidden inside a block that is present. `word` is where
// the words of the row begin.
std::vector<Pair> hidden_pairs(const BlockLayout& blocks, const Extent& extent, std::int64_t row,
                               const std::uint64_t* word) {
  std::vector<Pair> hidden;
  const std::int64_t size = blocks.block_size;
  for (std::int64_t block = 0; block < blocks.key_blocks; ++block) {
    if (blocks.present[at(row * blocks.key_blocks + block)] == 0) continue;
    for (std::int64_t i = 0; i < size; ++i, ++word) {
      const std::int64_t q = row % blocks.query_blocks * size + i;
      for (std::int64_t kv = block * size; kv < std::min((block + 1) * size, extent.keys.end);
           ++kv) {
        const bool visible = (*word >> (kv - block * size) & 1) != 0;
        if (q < extent.queries.end && !visible) hidden.push_back({0, 0, q, kv});
      }
    }
  }
  return hidden;
}

// The first of these pairs that the mask shows.
std::optional<Pair> first_shown(const Mask& mask, const std::vector<Pair>& pairs, std::int64_t b,
                                std::int64_t h) {
  std::vector<std::int64_t> q, kv;
  for (const Pair& pair : pairs) {
    q.push_back(pair.q);
    kv.push_back(pair.kv);
  }
  ir::Interpreter<double> run(mask.graph, mask.memory);
  run({.b = {&b, 1}, .h = {&h, 1}, .q = q, .kv = kv}, static_cast<std::int64_t>(pairs.size()));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const bool fails = !run.poison(0).empty() && run.poison(0)[i] != 0;  // a call will say so
    if (!fails && run.booleans(0)[i] != 0) return Pair{b, h, pairs[i].q, pairs[i].kv};
  }
  return std::nullopt;
}

// Throws if the mask shows a pair that is hidden inside a block.
void check_inside(const BlockLayout& blocks, const Mask& mask, const Extent& extent,
                  const base::Workers& workers) {
  if (!blocks.mask) return;
  const std::vector<std::uint64_t> words = mask_words(blocks);
  std::vector<std::int64_t> first_word{0};  // of each row of blocks
  for (std::int64_t row = 0; row < blocks.lut_heads * blocks.query_blocks; ++row) {
    const auto begin = blocks.present.begin() + row * blocks.key_blocks;
    const auto count =
        std::count_if(begin, begin + blocks.key_blocks, [](auto p) { return p != 0; });
    first_word.push_back(first_word.back() + count * blocks.block_size);
  }
  const std::int64_t batches = mask.graph.uses(ir::Input::b) ? extent.batch : 1;
  const bool every_head = mask.graph.uses(ir::Input::h) && blocks.lut_heads == 1;
  std::vector<std::optional<Pair>> shown(at(blocks.lut_heads * blocks.query_blocks));
  base::parallel_for(workers, static_cast<std::int64_t>(shown.size()), [&](std::int64_t row) {
    const std::vector<Pair> hidden =
        hidden_pairs(blocks, extent, row, words.data() + first_word[at(row)]);
    if (hidden.empty()) return;
    const std::int64_t head = row / blocks.query_blocks;
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t h = head; h < (every_head ? extent.heads : head + 1); ++h) {
        if (!shown[at(row)]) shown[at(row)] = first_shown(mask, hidden, b, h);
      }
    }
  });
  for (const std::optional<Pair>& pair : shown) {
    if (!pair) continue;
    base::fail(
        "layout: the mask shows (b {}, h {}, q {}, kv {}), which the block layout hides inside a "
        "block; compile with to_mask(block layout), alone or & others",
        pair->b, pair->h, pair->q, pair->kv);
  }
}

}  // namespace

layout::Selection from_block_layout(const BlockLayout& blocks, const Mask& mask,
                                    const Extent& extent, const base::Workers& workers) {
  blocks.check();
  const std::int64_t size = blocks.block_size;
  check_length("queries", extent.queries.count(), blocks.query_blocks, size);
  check_length("keys", extent.keys.count(), blocks.key_blocks, size);
  if (blocks.heads != extent.heads) {
    base::fail("layout: the block layout is for {} heads, there are {}", blocks.heads,
               extent.heads);
  }
  check_inside(blocks, mask, extent, workers);
  auto present = blocks.present.begin();
  std::vector<std::vector<Run>> lists(at(blocks.lut_heads * blocks.query_blocks));
  for (auto& list : lists) {
    for (std::int64_t begin = 0; begin < blocks.key_blocks * size; begin += size) {
      if (*present++ != 0) append(list, begin, std::min(begin + size, extent.keys.end), false);
    }
  }
  return {extent, size, 1, blocks.lut_heads, lists};
}

}  // namespace treadle::patterns
