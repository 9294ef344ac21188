// Functions of floats: exp, tanh, pow and their kind, of scalars or of vectors, of fp32 or fp64.
//
// Within 4 ulp of the true value everywhere. Vectors of fp32 have exp2, exp, sigmoid and tanh in
// line (math_inline.h); the others are glibc's vector functions where the target has them.
// Everywhere else, and for scalars, the C library's functions are called.
#pragma once

#include "emit/llvm/builder.h"
#include "ir/op.h"

namespace treadle::emit::llvm {

// `op` is one of pow .. erf in ops.def; the operands are all scalars or all vectors of one type.
Value* emit_math(Builder& build, ir::Op op, const Values& operands);

}  // namespace treadle::emit::llvm
