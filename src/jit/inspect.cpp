// Code that is looked at or taken elsewhere, not run.
#include "jit/inspect.h"

#include <llvm/Config/llvm-config.h>

#include "emit/llvm/emit.h"
#include "jit/compiler.h"
#include "jit/engine.h"

namespace treadle::jit {

std::string assembly_of(emit::llvm::Module module, const plan::Target& target) {
  Compiler compiler(target);
  compiler.optimise(*module.module);
  return compiler.assembly(*module.module);
}

std::string object_of(emit::llvm::Module module, const plan::Target& target) {
  Compiler compiler(target);
  compiler.optimise(*module.module);
  return compiler.object(*module.module);
}

std::string assembly_of(const plan::KernelSpec& spec) {
  return assembly_of(emit::llvm::emit(spec), target_of(spec));
}

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace treadle::jit
