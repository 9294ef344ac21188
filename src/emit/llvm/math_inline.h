// Functions of fp32 vectors that are worth having in line: scores go through them.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

Value* inline_exp2(Builder& build, Value* x);
Value* inline_exp(Builder& build, Value* x);
Value* inline_tanh(Builder& build, Value* x);

}  // namespace treadle::emit::llvm
