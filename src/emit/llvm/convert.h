// Numbers between memory and arithmetic; scalars and vectors alike.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

// What to load and store. 8-bit and 16-bit types are integers: LLVM has none of the former, and
// turns its own types for the latter into calls on targets without such instructions.
::llvm::Type* stored_type(Builder& build, DType dtype);

// A value loaded as `from`, a float type or i8, exactly: f32, or f64 if `from` or `to` is f64.
Value* from_stored(Builder& build, Value* stored, DType from, DType to);

// Numbers of such a type in a word of 32 bits that is loaded instead of them: as many as cost little to
// take apart, 1 for other types.
int numbers_per_word(DType type);

// One of them, counted from the lowest address, in f32, exactly.
Value* number_in_word(Builder& build, Value* word, int number, DType type);

// What to store as `to`, which has 16 bits or more: an f32 or f64, rounded once, to nearest even.
Value* to_stored(Builder& build, Value* value, DType to);

}  // namespace treadle::emit::llvm
