// AddressSanitizer's checks in kernels, and whether this program can run them.
#include "jit/sanitize.h"

#include <dlfcn.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/Transforms/Instrumentation/AddressSanitizer.h>

#include "base/error.h"

namespace treadle::jit {

void check_sanitizer_runtime() {
  if (dlsym(RTLD_DEFAULT, "__asan_init") != nullptr) return;
  base::fail(
      "TREADLE_SANITIZE=address: this program has no sanitizer runtime; it must be built with "
      "-fsanitize=address");
}

void add_address_checks(llvm::Module& module, llvm::ModulePassManager& passes) {
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) function.addFnAttr(llvm::Attribute::SanitizeAddress);
  }
  // Checked globals would have to be registered by a constructor before the first call. Kernels
  // have none but constants.
  for (llvm::GlobalVariable& global : module.globals()) {
    llvm::GlobalValue::SanitizerMetadata unchecked = {};
    unchecked.NoAddress = true;
    global.setSanitizerMetadata(unchecked);
  }
  llvm::AddressSanitizerOptions options;
  options.UseAfterReturn = llvm::AsanDetectStackUseAfterReturnMode::Never;
  options.InsertVersionCheck = false;
  passes.addPass(llvm::AddressSanitizerPass(options, /*UseGlobalGC=*/false,
                                            /*UseOdrIndicator=*/false, llvm::AsanDtorKind::None,
                                            llvm::AsanCtorKind::None));
}

void leave_room_in_front(llvm::Module& module) {
  // Zeros are no type, so the caller does not compare. 16 bytes keep the function aligned.
  auto* word = llvm::Type::getInt64Ty(module.getContext());
  auto* room = llvm::ConstantAggregateZero::get(llvm::ArrayType::get(word, 2));
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) function.setPrefixData(room);
  }
}

}  // namespace treadle::jit
