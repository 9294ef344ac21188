// The parallel loop of the stages.
//
//   parallel_for(executor, tiles, [&](std::int64_t tile) { ... });
#pragma once

#include <cstdint>
#include <functional>

#include "treadle/executor.h"

namespace treadle::base {

// f(0) ... f(count - 1), as Executor::run promises. A single task stays in the calling thread.
template <class F>
void parallel_for(Executor& executor, std::int64_t count, F&& f) {
  if (count == 1) {
    f(std::int64_t{0});
  } else if (count > 1) {
    executor.run(count, std::ref(f));  // by reference: a std::function of it needs no memory
  }
}

}  // namespace treadle::base
