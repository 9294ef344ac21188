// The parallel loop of the stages, and who works in it.
//
//   parallel_for(workers, tiles, [&](std::int64_t tile) { ... });
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <utility>

#include "treadle/executor.h"

namespace treadle::base {

// Who works on a call, an executor's threads, and how long: until somebody asks to stop.
class Workers {
 public:
  // An executor is enough, so it converts. How many threads it has is asked once.
  Workers(Executor& executor, std::stop_token stop = {})  // NOLINT(google-explicit-constructor)
      : executor_(executor), threads_(std::max(executor.threads(), 1)), stop_(std::move(stop)) {}

  [[nodiscard]] int threads() const { return threads_; }

  // The same without an end: for work that others rely on.
  [[nodiscard]] Workers unstoppable() const {
    Workers all = *this;
    all.stop_ = {};
    return all;
  }

  // Throws Stopped if somebody asked to stop. Long tasks look here between their parts.
  void check() const {
    if (stop_.stop_requested()) [[unlikely]]
      throw_stopped();
  }

  // task(0) ... task(count - 1), each exactly once and begun in ascending order, whatever the
  // executor does: tasks are numbered here, and what it leaves undone the calling thread does. When
  // one throws, or somebody asks to stop, no new one begins; the first exception, or Stopped, is
  // thrown once those already begun have ended.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) const;

 private:
  [[noreturn]] static void throw_stopped();

  Executor& executor_;
  int threads_;
  std::stop_token stop_;
};

// f(0) ... f(count - 1), as Workers::run promises. A single task stays in the calling thread.
template <class F>
void parallel_for(const Workers& workers, std::int64_t count, F&& f) {
  if (count == 1) {
    workers.check();
    f(std::int64_t{0});
  } else if (count > 1) {
    workers.run(count, std::ref(f));  // by reference: a std::function of it needs no memory
  }
}

}  // namespace treadle::base
