// Generated code among sanitizers: checks of its own, and what its callers' checks expect.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>

namespace treadle::jit {

// For TREADLE_SANITIZE=address. The checks report to a runtime that only a program built with
// -fsanitize=address has. Throws treadle::Error in one that was not.
void check_sanitizer_runtime();

// Adds the pass, and marks what it is to look at: every function.
void add_address_checks(llvm::Module& module, llvm::ModulePassManager& passes);

// A caller built with -fsanitize=function reads the 8 bytes in front of what it calls, where Clang
// writes a function's type. In front of the first function of a page there would be nothing to
// read.
void leave_room_in_front(llvm::Module& module);

}  // namespace treadle::jit
