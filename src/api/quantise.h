// Rows of floats in 8 bits, with a scale.
//
//   const FloatRow row{data, DType::bf16, 32, 1, 16};          // 16 elements from the 33rd on
//   const float scale = scale_for(DType::i8, greatest_of(row));
//   quantise(to, DType::i8, 0, row, scale);                    // x / scale, rounded and saturated
//
// The rules are those of treadle/paged_kv.h. Nothing here allocates or throws.
#pragma once

#include <cstdint>

#include "treadle/dtype.h"

namespace treadle::api {

// The largest magnitude that is stored: 127, 448 or 57344.
double most_of(DType stored);

// Elements of f64, f32, bf16 or f16.
struct FloatRow {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t offset = 0, stride = 1, count = 0;
};

// The first element that is not finite in f32, or -1.
std::int64_t find_nonfinite(const FloatRow& row);

// max |x|, 0 for no elements.
double greatest_of(const FloatRow& row);

// A scale, finite and never 0 or subnormal, with which numbers up to `greatest` fit.
float scale_for(DType stored, double greatest);

// Into contiguous elements of i8, e4m3 or e5m2, from an offset on.
void quantise(void* to, DType stored, std::int64_t offset, const FloatRow& row, float scale);

}  // namespace treadle::api
