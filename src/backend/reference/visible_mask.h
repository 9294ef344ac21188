// A layout of listed keys as a mask, for the reference, which knows no layouts.
#pragma once

#include "layout/layout.h"
#include "reference/attention.h"
#include "treadle/tensor.h"

namespace treadle::backend::reference {

struct VisibleMask {
  Tensor kinds;  // u8, [batch or 1, heads or 1, tiles, keys]: 0 hidden, 1 ask the mask, 2 visible
  treadle::reference::Bound bound;  // kinds[...] == 2 || kinds[...] == 1 && mask
};

// The layout is one of listed keys, so its tiles are in blocks of queries.
VisibleMask visible_mask(const layout::Layout& layout, const treadle::reference::Bound& mask);

}  // namespace treadle::backend::reference
