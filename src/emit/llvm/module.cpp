// LLVM's module and context, which must be freed in this order.
#include "emit/llvm/module.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Triple.h>

namespace treadle::emit::llvm {

Module::Module() = default;
Module::Module(Module&&) noexcept = default;
Module::~Module() = default;

// Assigned member by member, the old context would be freed before the old module, which needs it.
Module& Module::operator=(Module&& other) noexcept {
  module = std::move(other.module);
  context = std::move(other.context);
  return *this;
}

Module make_module(const std::string& name, const plan::Target& target) {
  Module made;
  made.context = std::make_unique<::llvm::LLVMContext>();
  made.module = std::make_unique<::llvm::Module>(name, *made.context);
#if LLVM_VERSION_MAJOR >= 21
  made.module->setTargetTriple(::llvm::Triple(target.triple));
#else
  made.module->setTargetTriple(target.triple);
#endif
  return made;
}

std::string to_text(const Module& module) {
  std::string text;
  ::llvm::raw_string_ostream stream(text);
  module.module->print(stream, nullptr);
  return text;
}

}  // namespace treadle::emit::llvm
