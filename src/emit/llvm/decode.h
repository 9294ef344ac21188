// The decode kernel as LLVM IR; plan/decode_kernel.h says what it computes.
#pragma once

#include "emit/llvm/module.h"
#include "plan/decode_kernel.h"

namespace treadle::emit::llvm {

Module emit_decode(const plan::DecodeKernelSpec& spec);

}  // namespace treadle::emit::llvm
