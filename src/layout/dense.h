// Masks that are nothing but a captured bool array over (q, kv): read, not analysed.
#pragma once

#include <optional>

#include "layout/build.h"

namespace treadle::layout {

// The array, if the mask is array[..., q, kv] with constants, b or h before, and large enough for
// the extent.
struct DenseMask {
  ConstView array;                  // of bools
  std::vector<int> leading;         // per axis before the last two: 0 for b, 1 for h, or
  std::vector<std::int64_t> fixed;  // the constant there (leading is 2)
};
std::optional<DenseMask> as_dense(const Mask& mask, const Extent& extent);

// The runs of one tile.
void classify_dense(const DenseMask& mask, const Tiles& tiles, std::int64_t b, std::int64_t h,
                    std::int64_t tile, Range keys, std::vector<Run>& runs);

}  // namespace treadle::layout
