// Generated code that checks its own reads and writes, for TREADLE_SANITIZE=address.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>

namespace treadle::jit {

// The checks report to a runtime that only a program built with -fsanitize=address has. Throws
// treadle::Error in one that was not.
void check_sanitizer_runtime();

// Adds the pass, and marks what it is to look at: every function.
void add_address_checks(llvm::Module& module, llvm::ModulePassManager& passes);

}  // namespace treadle::jit
