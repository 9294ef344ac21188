// Functions of floats: exp, tanh, pow and others, of scalars or vectors, of fp32 or fp64.
//
// Within 4 ulp of the true value everywhere. exp2, exp, sigmoid and tanh of fp32 are inlined
// (math_inline.h); the others are glibc's vector functions where the target has them, always those
// of the target's widest vectors, and the C library's functions elsewhere. A scalar is computed as a
// lane of a vector is: what a function returns depends on its operands and the target alone.
#pragma once

#include "emit/llvm/builder.h"
#include "ir/op.h"

namespace treadle::emit::llvm {

// `op` is one of pow .. erf in ops.def; the operands are all scalars or all vectors of one type.
Value* emit_math(Builder& build, ir::Op op, const Values& operands);

}  // namespace treadle::emit::llvm
