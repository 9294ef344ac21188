// Floats as they lie in memory, and as they are calculated with. Scalars and vectors alike.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

// What to load and store: 16-bit types travel as integers, because LLVM turns their own types into
// calls on targets that do not know them.
::llvm::Type* stored_type(Builder& build, DType dtype);

// From what lies in memory as `from`: exactly f32, or f64 if `from` or `to` is f64.
Value* from_stored(Builder& build, Value* stored, DType from, DType to);

// To what is to lie in memory, from f32 or f64, rounded to nearest even, once.
Value* to_stored(Builder& build, Value* value, DType to);

}  // namespace treadle::emit::llvm
