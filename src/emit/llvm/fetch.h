// Fetcher: emits requests for memory that later tasks need (plan::FetchList).
//
//   Fetcher fetcher(build, args[&plan::ForwardKernelArgs::fetch]);
//   fetcher.fetch();      // a piece; between multiply-adds, as often as there are some to wait for
//   fetcher.finish();     // the list goes on there in the next call
#pragma once

#include <cstdint>

#include "emit/llvm/builder.h"
#include "emit/llvm/kernel_function.h"
#include "plan/fetch_list.h"

namespace treadle::emit::llvm {

class Fetcher {
 public:
  // At the beginning of a function.
  Fetcher(Builder& build, Value* list);

  void fetch();
  void finish();

 private:
  Builder& build_;
  Arguments<plan::FetchList> list_;
  Value* next_;  // the address of a pointer into the list
  Value* end_;
};

inline constexpr std::int64_t line_bytes = 64;  // of the cache

// Asks for a line of memory to be read into the second cache. None need be there.
void prefetch(Builder& build, Value* address);

}  // namespace treadle::emit::llvm
