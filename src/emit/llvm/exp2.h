// Powers of two as the softmax needs them: 2^0 is exactly 1, and rescaling is exact.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

// To whole numbers: half to even, and upwards. Of any of the builder's floats.
Value* round_even(Builder& build, Value* x);
Value* round_up(Builder& build, Value* x);

// 2^(s - m) for a whole m >= s; 0 where s is far below m, also for s = -inf. The fraction of s is
// taken before m is subtracted, so changing m by a whole number changes the result by an exact
// power of two (scale.h: unless the power is too small for a normal number). A NaN in s stays NaN.
// Within 2.04 ulp, or 2.30 without FMA.
Value* exp2_below(Builder& build, Value* s, Value* m);

// What weights are measured by before and after a maximum grows: 2^ceil m.
struct Growth {
  Value* power = nullptr;   // ceil m', 0 where nothing was seen
  Value* change = nullptr;  // ceil m - ceil m', at most 0; 0 where nothing was seen before
};
Growth growth(Builder& build, Value* old_maximum, Value* new_maximum);

}  // namespace treadle::emit::llvm
