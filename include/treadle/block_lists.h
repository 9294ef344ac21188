// FlexAttention's block lists, in and out.
//
//   BlockLists lists = causal.block_lists({64, 64}, {q, k, v});   // of the mask, for PyTorch
//   Layout layout = causal.layout(lists.views(), {q, k, v});      // or from PyTorch's arrays
//   Forward y = causal.forward({q, k, v}, {.layout = layout});
//
// A row of blocks has two lists: partial blocks, where the mask decides pair by pair, and full
// ones, where it is not asked. Pairs of blocks in neither are hidden.
#pragma once

#include <cstdint>
#include <optional>

#include "treadle/api.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle {

// Lists in memory of the caller: i32 or i64, of any strides; batch may be 1, heads 1 or the key
// heads. The first kv_num_blocks[b, h, i] entries of kv_indices[b, h, i] count, in any order. The
// rest may be anything, so indices need not be as wide as there are key blocks.
struct BlockListViews {
  std::int64_t query_block = 128, key_block = 128;  // positions in a block
  ConstView kv_num_blocks;                          // [batch, heads, query blocks]
  ConstView kv_indices;                             // [batch, heads, query blocks, longest list]
  std::optional<ConstView> full_kv_num_blocks = {}, full_kv_indices = {};  // both or neither
};

// Lists that own their memory, all i32. As in PyTorch a row of indices begins with its blocks in
// ascending order and goes on with all others in ascending order.
struct BlockLists {
  std::int64_t query_block = 128, key_block = 128;  // positions in a block
  Tensor kv_num_blocks, full_kv_num_blocks;         // [batch, heads, query blocks]
  Tensor kv_indices, full_kv_indices;               // [batch, heads, query blocks, key blocks]
  // The same blocks, by key block.
  Tensor q_num_blocks, full_q_num_blocks;  // [batch, heads, key blocks]
  Tensor q_indices, full_q_indices;        // [batch, heads, key blocks, query blocks]

  // Valid as long as these lists live.
  [[nodiscard]] TREADLE_API BlockListViews views() const&;
};

// How lists are to be made.
struct BlockListOptions {
  std::int64_t query_block = 128, key_block = 128;  // positions in a block
  // Positions past the lengths are no pairs at all, so a block at the border is full when every
  // pair that it has is visible. PyTorch counts them as hidden there, so that such a block is
  // always partial; with tails_partial the lists are exactly PyTorch's.
  bool tails_partial = false;
};

}  // namespace treadle
