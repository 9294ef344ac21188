// Floats between memory and arithmetic; scalars and vectors alike.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

// What to load and store. 16-bit types are integers, because LLVM turns its own types for them into
// calls on targets without such instructions.
::llvm::Type* stored_type(Builder& build, DType dtype);

// A value loaded as `from`, exactly: f32, or f64 if `from` or `to` is f64.
Value* from_stored(Builder& build, Value* stored, DType from, DType to);

// What to store as `to`: an f32 or f64, rounded once, to nearest even.
Value* to_stored(Builder& build, Value* value, DType to);

}  // namespace treadle::emit::llvm
