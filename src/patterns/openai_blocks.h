// OpenAI's block layouts, in and out.
//
//   Selection selection = from_block_layout(layout, extent);       which blocks to look at,
//   Layout runs = build(traced(to_mask(layout)), selection, ...);  the mask inside them
//
//   BlockLayout layout = to_block_layout(mask, heads, queries, keys, 32, executor);
#pragma once

#include <cstdint>

#include "layout/build.h"
#include "layout/selection.h"
#include "treadle/block_layout.h"
#include "treadle/executor.h"

namespace treadle::patterns {

// The blocks that are present. Those in which every pair is visible skip the mask. The layout must
// have as many blocks as the lengths need, and as many heads; the last ones may be cut.
layout::Selection from_block_layout(const BlockLayout& layout, const layout::Extent& extent);

// The blocks that hold a visible pair, and a mask that knows each pair of them; no mask if all are
// visible. One layout for all heads if the mask does not mention the head. blocksparse wants as
// many blocks in every head: heads with fewer get blocks in which nothing is visible. Positions
// past the lengths are hidden. Throws treadle::Error for a mask that mentions the batch or that
// fails at a pair, and for a block size that blocksparse does not have.
BlockLayout to_block_layout(const layout::Mask& mask, std::int64_t heads, std::int64_t queries,
                            std::int64_t keys, std::int64_t block_size, Executor& executor);

}  // namespace treadle::patterns
