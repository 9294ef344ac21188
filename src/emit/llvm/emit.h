// From a kernel's description to a module of LLVM IR: the entry to this folder.
#pragma once

#include "emit/llvm/module.h"
#include "plan/kernel_spec.h"

namespace treadle::emit::llvm {

// The module's function `kernel` takes the address of the spec's Args.
Module emit(const plan::KernelSpec& spec);

}  // namespace treadle::emit::llvm
