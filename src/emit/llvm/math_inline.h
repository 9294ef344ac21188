// Functions of fp32 vectors that are inlined, because mods apply them to every score.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

Value* inline_exp2(Builder& build, Value* x);
Value* inline_exp(Builder& build, Value* x);
Value* inline_tanh(Builder& build, Value* x);

}  // namespace treadle::emit::llvm
