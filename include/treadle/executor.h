// Who runs the parallel parts of a call.
//
//   auto two = tbb_executor(2);
//   two->run(3, [&](std::int64_t i) { out[i] = f(i); });   // f(0), f(1), f(2) on two threads
//
// A program with a thread pool of its own implements Executor and passes it instead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "treadle/api.h"

namespace treadle {

// Threads that run the parallel parts of calls.
class TREADLE_API Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor();

  // How many tasks may run at the same time, at least 1. Results do not depend on it. A call asks
  // once.
  [[nodiscard]] virtual int threads() const = 0;

  // Runs task(0) ... task(count - 1), each exactly once, in any order, and returns when all are
  // done; a count of 0 or less runs nothing. What the tasks wrote is visible to the caller. When
  // tasks throw, no new one starts and the first exception is rethrown here once those already
  // started have ended. May be called from several threads at once, and by a task.
  //
  // Calls of attention forgive what they can: a task that is run again does nothing, tasks that are
  // left undone are done by the calling thread, and an exception of the executor's own is passed
  // on. They need that no task begins after run has returned or thrown, and have working memory
  // for threads() tasks at once: more of them take more when it is too late to fail cleanly.
  virtual void run(std::int64_t count, const std::function<void(std::int64_t)>& task) = 0;
};

// Threads of oneTBB, shared with whatever else in the program uses it; 0 = one per hardware thread.
// Tasks start in ascending order: put the longest first.
TREADLE_API std::shared_ptr<Executor> tbb_executor(int threads = 0);

// Everything in the calling thread, in ascending order.
TREADLE_API std::shared_ptr<Executor> serial_executor();

}  // namespace treadle
