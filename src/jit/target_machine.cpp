// LLVM's machine for a target.
#include "jit/target_machine.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Triple.h>

#include "base/error.h"

// LLVM is built for some processors and names only those in its headers; the two of plan's table
// must be among them.
namespace treadle::jit {
namespace {

void initialize_llvm() {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}

const llvm::Target& find_llvm_target(llvm::Triple triple) {
  // LLVM's list of targets is not locked.
  static const bool once = (initialize_llvm(), true);
  (void)once;
  std::string message;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget("", triple, message);
  if (found == nullptr) base::internal_error("jit: target {}: {}", triple.str(), message);
  return *found;
}

}  // namespace

std::unique_ptr<llvm::TargetMachine> make_target_machine(const plan::Target& target) {
  const llvm::Triple triple(target.triple);
#if LLVM_VERSION_MAJOR >= 21
  const llvm::Triple& name = triple;
#else
  const std::string& name = triple.str();
#endif
  llvm::TargetOptions options;
  // a * b + c has one rounding where the emitter said fma and two where it did not.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(find_llvm_target(triple).createTargetMachine(
      name, target.cpu, /*Features=*/"", options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
      llvm::CodeGenOptLevel::Default));
  if (!machine) base::internal_error("jit: LLVM has no machine for {}", target.triple);
  return machine;
}

}  // namespace treadle::jit
