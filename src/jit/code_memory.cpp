// In: a graph of sections and blocks. Out: the pages they are copied to.
#include "jit/code_memory.h"

#include <llvm/ADT/BitmaskEnum.h>
#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/Support/Alignment.h>
#include <llvm/Support/Memory.h>

#include <cstring>
#include <memory>

namespace treadle::jit {
namespace {

using llvm::orc::ExecutorAddr;
using llvm::orc::MemLifetime;
using llvm::orc::MemProt;

llvm::Error refusal(const char* why) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), why);
}

// Bytes of all segments, each at the next place that is aligned for it.
template <class Place>
std::size_t lay_out(llvm::jitlink::BasicLayout& layout, const Place& place) {
  std::size_t at = 0;
  for (auto& entry : layout.segments()) {
    auto& segment = entry.second;
    at = llvm::alignTo(at, segment.Alignment);
    place(segment, at);
    at += segment.ContentSize + segment.ZeroFillSize;
  }
  return at;
}

}  // namespace

// Between the two: its contents are being written.
class CodeMemory::Loading final : public InFlightAlloc {
 public:
  Loading(CodePages& pages, std::byte* code, std::size_t bytes, llvm::jitlink::LinkGraph& graph)
      : pages_(pages), code_(code), bytes_(bytes), graph_(graph) {}

  void finalize(OnFinalizedFunction done) override {
    if (!graph_.allocActions().empty()) {
      pages_.give_back(code_);
      return done(refusal("an object with actions"));
    }
    if (!pages_.seal(code_)) {
      pages_.give_back(code_);
      return done(refusal(no_memory));
    }
    llvm::sys::Memory::InvalidateInstructionCache(code_, bytes_);
    done(FinalizedAlloc(ExecutorAddr::fromPtr(code_)));
  }

  void abandon(OnAbandonedFunction done) override {
    pages_.give_back(code_);
    done(llvm::Error::success());
  }

 private:
  CodePages& pages_;
  std::byte* code_;
  std::size_t bytes_;
  llvm::jitlink::LinkGraph& graph_;
};

void CodeMemory::allocate(const llvm::jitlink::JITLinkDylib* /*library*/,
                          llvm::jitlink::LinkGraph& graph, OnAllocatedFunction done) {
  using llvm::BitmaskEnumDetail::operator&;
  llvm::jitlink::BasicLayout layout(graph);
  for (const auto& entry : layout.segments()) {
    const llvm::orc::AllocGroup& group = entry.first;
    if ((group.getMemProt() & MemProt::Write) != MemProt::None ||
        group.getMemLifetime() != MemLifetime::Standard) {
      return done(refusal("an object with data that can be written"));
    }
  }
  const std::size_t bytes = lay_out(layout, [](auto& /*segment*/, std::size_t /*at*/) {});
  std::byte* code = pages_.take(bytes);
  if (code == nullptr) return done(refusal(no_memory));
  lay_out(layout, [&](auto& segment, std::size_t at) {
    segment.Addr = ExecutorAddr::fromPtr(code + at);
    segment.WorkingMem = reinterpret_cast<char*>(code + at);
    std::memset(code + at + segment.ContentSize, 0, segment.ZeroFillSize);
  });
  if (llvm::Error error = layout.apply()) {
    pages_.give_back(code);
    return done(std::move(error));
  }
  done(std::make_unique<Loading>(pages_, code, bytes, graph));
}

void CodeMemory::deallocate(std::vector<FinalizedAlloc> all, OnDeallocatedFunction done) {
  for (FinalizedAlloc& one : all) pages_.give_back(one.release().toPtr<std::byte*>());
  done(llvm::Error::success());
}

}  // namespace treadle::jit
