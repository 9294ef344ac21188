// Types of attention: what it may be given, and in which one sums, softmax, lse and max are.
//
//   compute_type(DType::bf16, DType::f64, DType::f32) == DType::f64
//   holds_keys(DType::e4m3), !holds_gradients(DType::e4m3)
#pragma once

#include "treadle/dtype.h"

namespace treadle::base {

// f64 if any input is f64, else f32.
constexpr DType compute_type(DType q, DType k, DType v) {
  const bool wide = q == DType::f64 || k == DType::f64 || v == DType::f64;
  return wide ? DType::f64 : DType::f32;
}

// Floats of 16 bits or more: what queries, results and gradients hold.
constexpr bool holds_gradients(DType type) {
  return type == DType::f64 || type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

// What keys and values hold: also 8-bit types that become floats exactly.
constexpr bool holds_keys(DType type) {
  return holds_gradients(type) || type == DType::e4m3 || type == DType::e5m2 || type == DType::i8;
}

}  // namespace treadle::base
