// Code that is looked at or taken elsewhere, not run.
#include "jit/inspect.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBufferRef.h>

#include <chrono>
#include <string_view>

#include "base/error.h"
#include "emit/llvm/emit.h"
#include "jit/compiler.h"
#include "jit/engine.h"

namespace treadle::jit {
namespace {

std::int64_t code_bytes(const std::string& object) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) base::internal_error("jit: {}", llvm::toString(file.takeError()));
  std::int64_t bytes = 0;
  for (const llvm::object::SectionRef& section : (*file)->sections())
    if (section.isText()) bytes += static_cast<std::int64_t>(section.getSize());
  return bytes;
}

std::int64_t count(std::string_view text, std::string_view word) {
  std::int64_t found = 0;
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

}  // namespace

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

CodeFacts facts_of(const plan::KernelSpec& spec) {
  const plan::Target target = target_of(spec);
  const auto start = std::chrono::steady_clock::now();
  const std::string object = object_of(emit::llvm::emit(spec), target);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;

  emit::llvm::Module again = emit::llvm::emit(spec);
  Compiler compiler(target);
  compiler.optimise(*again.module);
  const std::string assembly = compiler.assembly_with_remarks(*again.module);
  return {.ms = took.count(),
          .bytes = code_bytes(object),
          .spills = count(assembly, "Spill\n"),
          .reloads = count(assembly, "Reload\n")};
}

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace treadle::jit
