// Keeps one executor per number of threads, up to as many as the machine has.
#include "threads.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

namespace treadle::python {
namespace {

std::atomic<bool> serial{false};

// More threads than the machine has bring nothing, and oneTBB would keep them for the whole process.
int at_most_all(int threads) {
  static const auto all = static_cast<int>(std::thread::hardware_concurrency());  // 0: not known
  return all > 0 ? std::min(threads, all) : threads;
}

}  // namespace

std::shared_ptr<Executor> executor_for(int threads) {
  static std::mutex mutex;
  // Never taken down: threads may still be running when statics are.
  static auto* known = new std::map<int, std::shared_ptr<Executor>>;
  if (serial || threads == 1) return serial_executor();
  const int allowed = at_most_all(threads);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Executor>& executor = (*known)[allowed];
  if (!executor) executor = tbb_executor(allowed);
  return executor;
}

void stay_serial() { serial = true; }

}  // namespace treadle::python
