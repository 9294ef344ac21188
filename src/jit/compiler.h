// A Compiler turns a module into machine code for one target.
//
//   Compiler compiler(target);
//   compiler.optimise(module);
//   std::string object = compiler.object(module);   // ELF
//
// Emitters write loops already unrolled and vectorised, so the passes are few: O2 takes several
// times as long and gives the same code.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "jit/target_machine.h"
#include "plan/target.h"

namespace treadle::jit {

class Compiler {
 public:
  explicit Compiler(const plan::Target& target, bool address_checks = false)
      : machine_(make_target_machine(target)), address_checks_(address_checks) {}

  // Checks the module, gives it the machine's data layout and runs the passes.
  void optimise(llvm::Module& module);

  // Either leaves a module of no further use: generating code rewrites it.
  std::string object(llvm::Module& module) {
    return generate(module, llvm::CodeGenFileType::ObjectFile);
  }
  std::string assembly(llvm::Module& module) {
    return generate(module, llvm::CodeGenFileType::AssemblyFile);
  }
  // With LLVM's remarks, which say where a value goes to the stack and comes back.
  std::string assembly_with_remarks(llvm::Module& module) {
    machine_->Options.MCOptions.AsmVerbose = true;
    return assembly(module);
  }

 private:
  std::string generate(llvm::Module& module, llvm::CodeGenFileType type);

  std::unique_ptr<llvm::TargetMachine> machine_;
  bool address_checks_;
};

}  // namespace treadle::jit
