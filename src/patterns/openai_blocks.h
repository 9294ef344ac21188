// OpenAI's block layouts, in and out.
//
//   Selection selection = from_block_layout(blocks, mask, extent, workers);
//   Layout layout = build(mask, selection, tiles_for(selection, weights), workers);
//
//   BlockLayout blocks = to_block_layout(mask, layout, 32, workers);
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "layout/build.h"
#include "layout/selection.h"
#include "treadle/block_layout.h"

namespace treadle::patterns {

// The blocks that are present; inside them the mask decides. A layout has no place for single
// pairs, so the mask must hide what the block layout hides inside its blocks, as to_mask(blocks)
// does; treadle::Error where it does not. There must be as many blocks as the lengths need, of
// which the last ones may be cut, and as many heads.
layout::Selection from_block_layout(const BlockLayout& blocks, const layout::Mask& mask,
                                    const layout::Extent& extent, const base::Workers& workers);

// The blocks that hold a visible pair, and a mask that knows each pair of them; no mask if all are
// visible. `layout` is one of the mask, in any order and perhaps of listed keys only. One for all
// heads if it is the same for them. blocksparse wants as many blocks in every head: heads with
// fewer get blocks in which nothing is visible. Positions past the lengths are hidden. Throws
// treadle::Error for a layout that differs between batches, for a mask that fails at a pair, and
// for a block size that blocksparse does not have.
BlockLayout to_block_layout(const layout::Mask& mask, const layout::Layout& layout,
                            std::int64_t block_size, const base::Workers& workers);

}  // namespace treadle::patterns
