// FlexAttention's block lists, in and out.
//
//   Selection selection = from_block_lists({.query_block = 128, .key_block = 128,
//                                           .kv_num_blocks = num, .kv_indices = indices}, extent);
//   Layout layout = build(mask, selection, tiles, executor);
//
//   BlockLists lists = to_block_lists(mask, extent, {.query_block = 128, .key_block = 64},
//   executor); lists.kv_indices      [batch, heads, query blocks, key blocks]
//
// A row of blocks has two lists: partial blocks, where the mask decides pair by pair, and full
// ones, where it is not asked. Blocks in neither are not looked at.
#pragma once

#include <cstdint>
#include <optional>

#include "layout/build.h"
#include "layout/selection.h"
#include "treadle/executor.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle::layout {

// Lists in memory that somebody else owns: i32 or i64, of any strides; batch and heads may be 1,
// meaning the same for all. The first kv_num_blocks[b, h, i] entries of kv_indices[b, h, i] count,
// in any order. The rest may be anything, so indices need not be as wide as there are key blocks.
struct BlockListViews {
  std::int64_t query_block = 128, key_block = 128;
  ConstView kv_num_blocks;  // [batch, heads, query blocks]
  ConstView kv_indices;     // [batch, heads, query blocks, longest list]
  std::optional<ConstView> full_kv_num_blocks = {}, full_kv_indices = {};  // both or neither
};

// Throws treadle::Error for shapes that do not fit, counts that are negative or longer than the
// row, blocks that do not exist, and blocks that a row lists twice, be it as partial and as full.
Selection from_block_lists(const BlockListViews& lists, const Extent& extent);

// Lists of our own, all i32. As in PyTorch a row of indices begins with its blocks in ascending
// order and goes on with all others in ascending order.
struct BlockLists {
  std::int64_t query_block = 128, key_block = 128;
  Tensor kv_num_blocks, full_kv_num_blocks;  // [batch, heads, query blocks]
  Tensor kv_indices, full_kv_indices;        // [batch, heads, query blocks, key blocks]
  // The same blocks, by key block.
  Tensor q_num_blocks, full_q_num_blocks;  // [batch, heads, key blocks]
  Tensor q_indices, full_q_indices;        // [batch, heads, key blocks, query blocks]

  // Good as long as these lists live.
  [[nodiscard]] BlockListViews views() const&;
};

struct BlockListOptions {
  std::int64_t query_block = 128, key_block = 128;
  // Positions past the lengths are no pairs at all, so a block at the border is full when every
  // pair that it has is visible. PyTorch counts them as hidden there, so that such a block is
  // always partial; with tails_partial the lists are exactly PyTorch's.
  bool tails_partial = false;
};

// Lists for all batches and heads of the extent, whether or not the mask mentions them; for lists
// that all share, ask for one batch and one head. Where the mask fails (reads outside a capture), a
// block is partial.
BlockLists to_block_lists(const Mask& mask, const Extent& extent, const BlockListOptions& options,
                          Executor& executor);

}  // namespace treadle::layout
