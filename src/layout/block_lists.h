// FlexAttention's block lists of a mask, and of a layout. The way in is select_blocks() of
// layout/selection.h.
//
//   BlockLists lists = to_block_lists(mask, extent, {.key_block = 64}, workers);
//   lists.kv_indices      [batch, heads, query blocks, key blocks]
#pragma once

#include <span>

#include "base/parallel.h"
#include "layout/build.h"
#include "layout/selection.h"
#include "treadle/block_lists.h"

namespace treadle::layout {

// Lists for all batches and heads of the extent, whether or not the mask mentions them; for lists
// that all share, ask for one batch and one head. Exact: a block is partial iff some but not all of
// its pairs are visible. Where the mask fails (reads outside a capture), a block is partial.
BlockLists to_block_lists(const Mask& mask, const Extent& extent, const BlockListOptions& options,
                          const base::Workers& workers);

// Lists which, with the layout's mask, show the pairs that the layout shows. A block is partial
// also where tiles do not tell more. `listed` is the selection that the layout was made from, or
// null: throws treadle::Error where that lists less than whole blocks, since the mask would show
// the rest.
// With several passes, all are of one extent, and a block is full if it is in one of them.
BlockLists to_block_lists(std::span<const Layout* const> passes, const Selection* listed,
                          const BlockListOptions& options, const base::Workers& workers);

inline BlockLists to_block_lists(const Layout& layout, const Selection* listed,
                                 const BlockListOptions& options, const base::Workers& workers) {
  const Layout* only = &layout;
  return to_block_lists(std::span(&only, 1), listed, options, workers);
}

}  // namespace treadle::layout
