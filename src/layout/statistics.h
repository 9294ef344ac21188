// Numbers about layouts.
#pragma once

#include <cstdint>

#include "layout/build.h"
#include "layout/layout.h"

namespace treadle::layout {

// Visible pairs over all batches and heads, exactly: full runs are counted, partial ones evaluated.
std::int64_t visible_pairs(const Mask& mask, const Layout& layout, const base::Workers& workers);

// The share of all pairs in blocks of `block` x `block` that hold a visible pair: what a kernel of
// square blocks works on.
double block_density(const Mask& mask, const Extent& extent, std::int64_t block,
                     const base::Workers& workers);

}  // namespace treadle::layout
