// States of tiles merged, as LLVM IR; plan/merge_kernel.h says what it computes.
#pragma once

#include "emit/llvm/module.h"
#include "plan/merge_kernel.h"

namespace treadle::emit::llvm {

Module emit_merge(const plan::MergeSpec& spec);

}  // namespace treadle::emit::llvm
