// Transpositions between rows and lanes as LLVM IR; plan/transpose_kernel.h says what they compute.
#pragma once

#include "emit/llvm/module.h"
#include "plan/transpose_kernel.h"

namespace treadle::emit::llvm {

Module emit_transpose(const plan::TransposeSpec& spec);

}  // namespace treadle::emit::llvm
