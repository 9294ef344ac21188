// A parallel loop that fails the same way for any number of threads.
//
//   parallel_for_first_error(workers, lists, [&](std::int64_t i) { read(i); });
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "treadle/error.h"

namespace treadle::layout {

// f(0) ... f(count - 1). Where some of them throw treadle::Error, that of the lowest number is
// thrown, not that of the fastest thread: then they run again, in order, so f must not mind.
template <class F>
void parallel_for_first_error(const base::Workers& workers, std::int64_t count, F&& f) {
  try {
    base::parallel_for(workers, count, f);
  } catch (const Error&) {
    for (std::int64_t i = 0; i < count; ++i) f(i);
    throw;
  }
}

}  // namespace treadle::layout
