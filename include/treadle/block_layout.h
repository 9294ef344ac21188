// Block layouts: which blocks of queries see which blocks of keys, as in OpenAI's blocksparse, with
// a mask inside them.
//
//   const auto causal = [](const BlockCell& c) {
//     return c.query_block != c.key_block || c.column <= c.row;
//   };
//   BlockLayout layout = block_layout(present, {.block_size = 32, .heads = 8, .mask = causal});
//   options.mask = to_mask(layout);
//
//     #..     3 x 3 blocks, 5 of them present, numbered row by row:   0 . .
//     ##.                                                             1 2 .
//     .##                                                             . 3 4
//
// A layout of your own is a few plain numbers; treadle/sparse_transformer.h has the ones of the
// Sparse Transformer.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "treadle/api.h"
#include "treadle/mod.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle {

// One pair inside a block that is present: row is the query, column the key, counted from the
// block's first ones.
struct BlockCell {
  std::int64_t head = 0;         // which of the layouts
  std::int64_t query_block = 0;  // counted from 0
  std::int64_t key_block = 0;    // counted from 0
  std::int64_t block = 0;        // its number in this layout
  std::int64_t row = 0;          // in the block, from 0
  std::int64_t column = 0;       // in the block, from 0
};

// Whether a pair inside a block that is present is visible.
using BlockMask = std::function<bool(const BlockCell&)>;

// Which blocks of query and key positions are present, and which of their pairs are visible.
struct BlockLayout {
  std::int64_t block_size = 64;   // positions in a block
  std::int64_t heads = 0;         // of the queries
  std::int64_t lut_heads = 1;     // layouts: one that all heads share, or one per head
  std::int64_t query_blocks = 0;  // rows of a layout
  std::int64_t key_blocks = 0;    // and columns
  // [lut_heads, query_blocks, key_blocks], not 0 where a block is
  std::vector<std::uint8_t> present = {};
  BlockMask mask = {};  // which pairs of a block are visible; empty: all of them

  // Throws treadle::Error unless it is a layout that blocksparse would take: blocks of 8, 16, 32 or
  // 64, as many in one layout as in the next, one layout or one per head. Everything below checks
  // it first.
  TREADLE_API void check() const;

  // Blocks that are present, per layout.
  [[nodiscard]] TREADLE_API std::int64_t block_count() const;

  // [lut_heads, query_blocks, key_blocks]: the number of each block, row by row in each layout; -1
  // where there is none.
  [[nodiscard]] TREADLE_API std::vector<std::int32_t> block_numbers() const;
};

// What block_layout needs to know besides the array.
struct BlockOptions {
  std::int64_t block_size = 64;  // positions in a block
  std::int64_t heads = 0;        // may be left out if there is a layout per head
  BlockMask mask = {};           // which pairs of a block are visible; empty: all of them
};

// From an array: [query_blocks, key_blocks] that all heads share, or [lut_heads, query_blocks,
// key_blocks]. A block is present where the array is not 0 after its fraction is cut off.
TREADLE_API BlockLayout block_layout(const ConstView& present, const BlockOptions& options);

// blocksparse's lookup tables, int32, by number of the block.
//   nt  [lut_heads, blocks, 2]                 (query block, key block)
//   nn  [lut_heads, query_blocks + blocks, 2]  (offset, count) for each query block, then entries
//                                              (block, key block), ascending
//   tn  [lut_heads, key_blocks + blocks, 2]    the same for key blocks, with (block, query block)
struct BlockTables {
  Tensor nt, nn, tn;        // as above
  std::int64_t nn_max = 0;  // most blocks in a row
  std::int64_t tn_max = 0;  // and in a column
};
TREADLE_API BlockTables block_tables(const BlockLayout& layout);

// The mask, asked once for each pair: [lut_heads, blocks, block_size] words, one per query; bit j
// is key j of the block.
TREADLE_API std::vector<std::uint64_t> mask_words(const BlockLayout& layout);

// The layout as a mask:
//   number = numbers[h, q // size, kv // size];
//   number >= 0 && (words[h, number, q % size] >> kv % size & 1) == 1
// Both tables are captures without names and live as long as the mask. A position beyond the
// layout's blocks fails the call.
TREADLE_API MaskMod to_mask(const BlockLayout& layout);

}  // namespace treadle
