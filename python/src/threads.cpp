// Keeps one executor per number of threads.
#include "threads.h"

#include <atomic>
#include <map>
#include <mutex>

namespace treadle::python {
namespace {

std::atomic<bool> serial{false};

}  // namespace

std::shared_ptr<Executor> executor_for(int threads) {
  static std::mutex mutex;
  // Never taken down: threads may still be running when statics are.
  static auto* known = new std::map<int, std::shared_ptr<Executor>>;
  if (serial || threads == 1) return serial_executor();
  const std::lock_guard lock(mutex);
  std::shared_ptr<Executor>& executor = (*known)[threads];
  if (!executor) executor = tbb_executor(threads);
  return executor;
}

void stay_serial() { serial = true; }

}  // namespace treadle::python
