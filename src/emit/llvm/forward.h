// The forward kernel as LLVM IR; plan/forward_kernel.h says what it computes.
#pragma once

#include "emit/llvm/module.h"
#include "plan/forward_kernel.h"

namespace treadle::emit::llvm {

Module emit_forward(const plan::ForwardKernelSpec& spec);

}  // namespace treadle::emit::llvm
