// Copies of rows as LLVM IR; plan/copy_kernel.h says what they compute.
#pragma once

#include "emit/llvm/module.h"
#include "plan/copy_kernel.h"

namespace treadle::emit::llvm {

Module emit_copy(const plan::CopySpec& spec);

}  // namespace treadle::emit::llvm
