// Elementwise copies between views of any strides and element types.
//
//   copy(to, from);                         shapes must be equal; the two must not overlap
//   Tensor wide = convert(keys, DType::f32);
//
// Floats round once, to nearest even. Integers truncate towards zero; what does not fit becomes the
// nearest limit, NaN becomes 0. A boolean is "not zero". copy() allocates nothing.
#pragma once

#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle::base {

void copy(const View& to, const ConstView& from);
Tensor convert(const ConstView& from, DType dtype);

}  // namespace treadle::base
