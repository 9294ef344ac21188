// Powers of two, as the softmax needs them: rescaling must be exact, and 2^0 exactly 1.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

// To whole numbers, half to even, and upwards. Of any float.
Value* round_even(Builder& build, Value* x);
Value* round_up(Builder& build, Value* x);

// x * 2^n for a whole n <= 0; 0 where the power itself is too small for a normal number.
Value* scale_down(Builder& build, Value* x, Value* n);

// 2^(s - m) for a whole m >= s, or 0 where s is far below m, -inf included. The fraction of s is
// taken before m is subtracted, so changing m by a whole number changes the result by an exact
// power of two. NaN gives NaN. 2.1 ulp in f32.
Value* power_below(Builder& build, Value* s, Value* m);

}  // namespace treadle::emit::llvm
