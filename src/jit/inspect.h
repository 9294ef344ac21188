// Code that is looked at or taken elsewhere, not run.
#pragma once

#include <string>

#include "emit/llvm/module.h"
#include "plan/target.h"

namespace treadle::jit {

// The module after the passes, as text of assembly, or as an ELF object.
std::string assembly_of(emit::llvm::Module module, const plan::Target& target);
std::string object_of(emit::llvm::Module module, const plan::Target& target);

}  // namespace treadle::jit
