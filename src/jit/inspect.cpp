// Code that is looked at or taken elsewhere, not run.
#include <llvm/Config/llvm-config.h>

#include "jit/compiler.h"
#include "jit/engine.h"

namespace treadle::jit {

std::string assembly_of(emit::Module module, const plan::Target& target) {
  Compiler compiler(target);
  compiler.optimise(*module.module);
  return compiler.assembly(*module.module);
}

std::string object_of(emit::Module module, const plan::Target& target) {
  Compiler compiler(target);
  compiler.optimise(*module.module);
  return compiler.object(*module.module);
}

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace treadle::jit
