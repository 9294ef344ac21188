// Requests for memory, spread over a kernel's multiply-adds.
#include "emit/llvm/fetch.h"

namespace treadle::emit::llvm {

void prefetch(Builder& build, Value* address) {
  // The first cache has room for few requests under way.
  constexpr std::uint32_t reading = 0, second_cache = 2, data = 1;
  build.CreateIntrinsic(
      ::llvm::Intrinsic::prefetch, {build.getPtrTy()},
      {address, build.getInt32(reading), build.getInt32(second_cache), build.getInt32(data)});
}

Fetcher::Fetcher(Builder& build, Value* list)
    : build_(build),
      list_(build, list),
      next_(build.CreateAlloca(build.getPtrTy())),
      end_(list_[&plan::FetchList::end]) {
  build.CreateStore(list_[&plan::FetchList::next], next_);
}

void Fetcher::fetch() {
  Value* next = build_.CreateLoad(build_.getPtrTy(), next_);
  Value* piece = build_.CreateLoad(build_.getPtrTy(), next);
  for (std::int64_t at = 0; at < plan::fetch_bytes; at += line_bytes)
    prefetch(build_, build_.CreateGEP(build_.getInt8Ty(), piece, build_.index(at)));
  Value* after = build_.CreateGEP(build_.getPtrTy(), next, build_.index(1));
  Value* at_end = build_.CreateICmpEQ(next, end_);
  build_.CreateStore(build_.CreateSelect(at_end, next, after), next_);
}

void Fetcher::finish() {
  build_.CreateStore(build_.CreateLoad(build_.getPtrTy(), next_), list_.address());
}

}  // namespace treadle::emit::llvm
