// The type in which attention is computed: sums, softmax, lse and max.
//
//   compute_type(DType::bf16, DType::f64, DType::f32) == DType::f64
#pragma once

#include "treadle/dtype.h"

namespace treadle::base {

// f64 if any input is f64, else f32.
constexpr DType compute_type(DType q, DType k, DType v) {
  const bool wide = q == DType::f64 || k == DType::f64 || v == DType::f64;
  return wide ? DType::f64 : DType::f32;
}

}  // namespace treadle::base
