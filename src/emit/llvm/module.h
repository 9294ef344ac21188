// A module of generated code, between emit and jit.
#pragma once

#include <memory>
#include <string>

#include "plan/target.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace treadle::emit::llvm {

// The context outlives the module, so it is declared first.
struct Module {
  std::unique_ptr<::llvm::LLVMContext> context;
  std::unique_ptr<::llvm::Module> module;

  Module();
  Module(Module&&) noexcept;
  Module& operator=(Module&&) noexcept;
  ~Module();
};

// An empty module for a target: triple and data layout set.
Module make_module(const std::string& name, const plan::Target& target);

// Its IR as text.
std::string to_text(const Module& module);

}  // namespace treadle::emit::llvm
