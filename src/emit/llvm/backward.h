// The backward kernel as LLVM IR; plan/backward_kernel.h says what it computes.
#pragma once

#include "emit/llvm/module.h"
#include "plan/backward_kernel.h"

namespace treadle::emit::llvm {

Module emit_backward(const plan::BackwardKernelSpec& spec);

}  // namespace treadle::emit::llvm
