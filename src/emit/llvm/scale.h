// x * 2^n of vectors: AVX-512's scalef where vectors fill its registers; elsewhere the bits of the
// power are made by a shift.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

// x * 2^n for a whole n <= 0, both of the builder's floats. Below the smallest normal power, at
// n < -126 in f32 and n < -1022 in f64, scalef rounds x * 2^n to a subnormal number and the shift
// returns 0.
Value* scale_down(Builder& build, Value* x, Value* n);

// A whole number, in both representations.
struct Whole {
  Value* integer = nullptr;  // i32
  Value* real = nullptr;
};

// x * 2^n of f32 vectors with one rounding, for |x| in 1/2 .. 2 and n in -252 .. 254.
Value* scale(Builder& build, Value* x, const Whole& n);

}  // namespace treadle::emit::llvm
