// LLVM's description of a plan::Target: what instructions there are, how data lies in memory.
#pragma once

#include <llvm/Target/TargetMachine.h>

#include <memory>

#include "plan/target.h"

namespace treadle::jit {

// A new one each time: generating code changes it, so threads do not share one.
std::unique_ptr<llvm::TargetMachine> make_target_machine(const plan::Target& target);

}  // namespace treadle::jit
