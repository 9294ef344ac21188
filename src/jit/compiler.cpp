// Passes and code generation for one module, with LLVM's own errors turned into ours.
#include "jit/compiler.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>

#include "base/error.h"
#include "jit/sanitize.h"

namespace treadle::jit {
namespace {

constexpr const char* pipeline =
    "function(early-cse,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),early-cse)";

void verify(const llvm::Module& module) {
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (llvm::verifyModule(module, &stream)) {
    base::internal_error("jit: module {} is malformed: {}", module.getName().str(), message);
  }
}

// Errors of code generation, as text. Left alone, LLVM prints them and ends the process.
class Diagnostics {
 public:
  explicit Diagnostics(llvm::LLVMContext& context) : context_(context) {
    context.setDiagnosticHandlerCallBack(&Diagnostics::handle, this);
  }
  Diagnostics(const Diagnostics&) = delete;
  Diagnostics& operator=(const Diagnostics&) = delete;
  ~Diagnostics() { context_.setDiagnosticHandlerCallBack(nullptr); }

  [[nodiscard]] const std::string& errors() const { return errors_; }

 private:
  static void handle(const llvm::DiagnosticInfo* info, void* self) {
    if (info->getSeverity() != llvm::DS_Error) return;
    llvm::raw_string_ostream stream(static_cast<Diagnostics*>(self)->errors_);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info->print(printer);
    stream << '\n';
  }

  llvm::LLVMContext& context_;
  std::string errors_;
};

}  // namespace

void Compiler::optimise(llvm::Module& module) {
  module.setDataLayout(machine_->createDataLayout());
  verify(module);

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager calls;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine_.get());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(calls);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, calls, modules);

  llvm::ModulePassManager passes;
  if (llvm::Error error = builder.parsePassPipeline(passes, pipeline)) {
    base::internal_error("jit: {}", llvm::toString(std::move(error)));
  }
  // Last, so that only what is left is checked.
  if (address_checks_) add_address_checks(module, passes);
  passes.run(module, modules);
}

std::string Compiler::generate(llvm::Module& module, llvm::CodeGenFileType type) {
  const Diagnostics diagnostics(module.getContext());
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine_->addPassesToEmitFile(passes, stream, nullptr, type)) {
    base::internal_error("jit: no code generator for {}", machine_->getTargetTriple().str());
  }
  passes.run(module);
  if (!diagnostics.errors().empty()) {
    base::internal_error("jit: module {}: {}", module.getName().str(), diagnostics.errors());
  }
  return {bytes.begin(), bytes.end()};
}

}  // namespace treadle::jit
