// The function that every kernel consists of, still without instructions.
#include "emit/llvm/kernel_function.h"

#include <llvm/IR/Module.h>

namespace treadle::emit::llvm {

EmptyKernel::EmptyKernel(const std::string& name, const plan::Target& target)
    : module(make_module(name, target)) {
  ::llvm::LLVMContext& context = *module.context;
  auto* type = ::llvm::FunctionType::get(::llvm::Type::getVoidTy(context),
                                         {::llvm::PointerType::getUnqual(context)}, false);
  function = make_function(*module.module, "kernel", type, target);
}

}  // namespace treadle::emit::llvm
