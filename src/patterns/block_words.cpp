// Writes OpenAI's block layouts: the visible pairs of a layout, as one word per query and block.
//
// In: a mask and a layout of it. Out: a BlockLayout. Read to_block_layout() first.
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "ir/interpret.h"
#include "layout/block_kinds.h"
#include "layout/first_error.h"
#include "patterns/openai_blocks.h"

namespace treadle::patterns {
namespace {

using base::at;
using layout::blocks_of;
using layout::Layout;
using layout::Mask;
using layout::Range;

using Words = std::vector<std::uint64_t>;

// The lowest `count` bits of a word.
std::uint64_t low_bits(std::int64_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

// For each row of blocks, the tiles that have queries of it.
std::vector<std::vector<std::int64_t>> tiles_of_rows(const layout::Tiles& tiles, std::int64_t rows,
                                                     std::int64_t size) {
  std::vector<std::vector<std::int64_t>> result(at(rows));
  for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
    for (std::int64_t i = 0; i < tiles.size(tile); ++i) {
      auto& row = result[at(tiles.query(tile, i) / size)];
      if (row.empty() || row.back() != tile) row.push_back(tile);
    }
  }
  return result;
}

// Reads the pairs of one head.
class PairReader {
 public:
  PairReader(const Mask& mask, const Layout& layout, std::int64_t head, std::int64_t size)
      : run_(mask.graph, mask.memory), layout_(layout), head_(head), size_(size) {}

  // One word per (key block, query of the row of blocks): bit j is key j.
  Words read(std::int64_t row, std::span<const std::int64_t> tiles) {
    Words words(at(blocks_of(layout_.extent().keys.count(), size_) * size_), 0);
    for (const std::int64_t tile : tiles) {
      for (std::int64_t i = 0; i < layout_.tiles().size(tile); ++i) {
        const std::int64_t q = layout_.tiles().query(tile, i);
        if (q / size_ != row) continue;
        layout::for_each_piece(layout_.runs(0, head_, tile),
                               [&](Range keys, bool full) { add(words, q, keys, full); });
      }
    }
    return words;
  }

 private:
  void add(Words& words, std::int64_t q, Range keys, bool full) {
    if (!full) ask(q, keys);
    for (std::int64_t kv = keys.begin; kv < keys.end; ++kv) {
      const bool visible = full || run_.booleans(0)[at(kv - keys.begin)] != 0;
      words[at(kv / size_ * size_ + q % size_)] |= static_cast<std::uint64_t>(visible)
                                                   << (kv % size_);
    }
  }

  void ask(std::int64_t q, Range keys) {
    keys_.clear();
    for (std::int64_t kv = keys.begin; kv < keys.end; ++kv) keys_.push_back(kv);
    const std::int64_t batch = 0;
    run_({.b = {&batch, 1}, .h = {&head_, 1}, .q = {&q, 1}, .kv = keys_}, keys.count());
    const auto poison = run_.poison(0);
    const auto failed = std::ranges::find_if(poison, [](auto p) { return p != 0; });
    if (failed == poison.end()) return;
    const std::int64_t i = failed - poison.begin();
    base::fail_mod("block_layout: the mask fails at (h {}, q {}, kv {}): {}", head_, q,
                   keys_[at(i)], run_.poison_reason(0, i));
  }

  ir::Interpreter<double> run_;
  const Layout& layout_;
  std::int64_t head_, size_;
  std::vector<std::int64_t> keys_;
};

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

// Which blocks are present: those that show a pair, and as many in each head.
void mark_present(BlockLayout& blocks, const std::vector<Words>& rows) {
  for (const Words& words : rows) {
    for (std::int64_t block = 0; block < blocks.key_blocks; ++block) {
      const auto begin = words.begin() + block * blocks.block_size;
      const bool empty = std::all_of(begin, begin + blocks.block_size,
                                     [](std::uint64_t word) { return word == 0; });
      blocks.present.push_back(empty ? 0 : 1);
    }
  }
  const std::int64_t per_head = blocks.query_blocks * blocks.key_blocks;
  const auto head = [&](std::int64_t h) {
    return std::span(blocks.present).subspan(at(h * per_head), at(per_head));
  };
  std::int64_t most = 0;
  for (std::int64_t h = 0; h < blocks.lut_heads; ++h)
    most = std::max<std::int64_t>(most, std::ranges::count(head(h), 1));
  for (std::int64_t h = 0; h < blocks.lut_heads; ++h) pad(head(h), most);
}

}  // namespace

BlockLayout to_block_layout(const Mask& mask, const Layout& layout, std::int64_t block_size,
                            const base::Workers& workers) {
  BlockLayout result{.block_size = block_size, .heads = layout.extent().heads};
  result.check();  // of the size and the heads, before they are used
  if (layout.per_batch()) {
    base::fail("block_layout: what is visible depends on the batch; a block layout is for all");
  }
  result.lut_heads = layout.per_head() ? result.heads : 1;
  result.query_blocks = blocks_of(layout.extent().queries.count(), block_size);
  result.key_blocks = blocks_of(layout.extent().keys.count(), block_size);

  const auto tiles = tiles_of_rows(layout.tiles(), result.query_blocks, block_size);
  std::vector<Words> rows(at(result.lut_heads * result.query_blocks));
  const auto count_of_rows = static_cast<std::int64_t>(rows.size());
  layout::parallel_for_first_error(workers, count_of_rows, [&](std::int64_t i) {
    const std::int64_t row = i % result.query_blocks;
    PairReader reader(mask, layout, i / result.query_blocks, block_size);
    rows[at(i)] = reader.read(row, tiles[at(row)]);
  });
  mark_present(result, rows);

  const auto words = std::make_shared<Words>();  // of all blocks that are present, in order
  for (std::size_t i = 0; i < result.present.size(); ++i) {
    if (result.present[i] == 0) continue;
    const std::int64_t block = static_cast<std::int64_t>(i) % result.key_blocks;
    const auto from = rows[i / at(result.key_blocks)].begin() + block * block_size;
    words->insert(words->end(), from, from + block_size);
  }
  const std::uint64_t all = low_bits(block_size);
  if (std::ranges::all_of(*words, [&](std::uint64_t word) { return word == all; })) return result;
  const std::int64_t count = result.block_count();
  result.mask = [words, count, block_size](const BlockCell& cell) {
    const std::int64_t row = (cell.head * count + cell.block) * block_size + cell.row;
    return ((*words)[at(row)] >> cell.column & 1) != 0;
  };
  return result;
}

}  // namespace treadle::patterns
