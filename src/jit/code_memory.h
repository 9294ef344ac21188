// Where JITLink puts the objects that it loads: all of an object in one row of CodePages.
//
// LLVM's own managers give each section a mapping of its own, two per kernel. Its
// MapperJITLinkMemoryManager shares reservations, but not rights, so the mappings stay as many;
// and when a load fails it gives back the whole reservation, other kernels included. Kernels have
// code and constants and nothing that is written, so one set of rights does: read and run.
#pragma once

#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>

#include "jit/code_pages.h"

namespace treadle::jit {

// An object with data that can be written is refused, and so are actions of plugins.
class CodeMemory final : public llvm::jitlink::JITLinkMemoryManager {
 public:
  // In the error when the system gives none.
  static constexpr const char* no_memory = "no memory for code";

  using JITLinkMemoryManager::allocate;
  using JITLinkMemoryManager::deallocate;

  void allocate(const llvm::jitlink::JITLinkDylib* library, llvm::jitlink::LinkGraph& graph,
                OnAllocatedFunction done) override;
  void deallocate(std::vector<FinalizedAlloc> all, OnDeallocatedFunction done) override;

 private:
  class Loading;

  CodePages pages_;
};

}  // namespace treadle::jit
