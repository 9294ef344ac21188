// Sums of gradients that parts of a call leave.
#pragma once

#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle::api {

// to += from, of one type, f32 or f64; `to` may be some rows of a tensor, `from` is contiguous.
void add(const View& to, const Tensor& from);

}  // namespace treadle::api
