// The loop that speed is measured by, as LLVM IR; plan/peak_kernel.h says what it computes.
#pragma once

#include "emit/llvm/module.h"
#include "plan/peak_kernel.h"

namespace treadle::emit::llvm {

Module emit_peak(const plan::PeakSpec& spec);

}  // namespace treadle::emit::llvm
