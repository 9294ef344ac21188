// Sums over queries as LLVM IR; plan/reduce_kernel.h says what they compute.
#pragma once

#include "emit/llvm/module.h"
#include "plan/reduce_kernel.h"

namespace treadle::emit::llvm {

Module emit_reduce(const plan::ReduceSpec& spec);

}  // namespace treadle::emit::llvm
