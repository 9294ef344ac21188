// The executors: tasks on the threads of oneTBB, or on the caller's own.
//
// In: a number of tasks. Out: all of them done. Each thread takes the next number until none is
// left, so tasks start in ascending order. Read Batch::work() first.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/arena.h"
#include "base/error.h"

namespace treadle {
namespace {

// The tasks of one run() and what became of them, shared by the threads that work on it.
class Batch {
 public:
  Batch(std::int64_t count, const std::function<void(std::int64_t)>& task)
      : count_(count), task_(task) {}

  // Takes tasks until none is left. Never throws.
  void work() {
    for (std::int64_t i = take(); i < count_; i = take()) {
      try {
        task_(i);
      } catch (...) {
        next_.store(count_, std::memory_order_relaxed);
        if (!failed_.exchange(true)) failure_ = std::current_exception();
      }
    }
  }

  // Only after every thread has left work().
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Relaxed: a number is all that threads tell each other here. A stronger order would also order
  // the tasks themselves and so hide their races from ThreadSanitizer.
  std::int64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }

  std::int64_t count_;
  const std::function<void(std::int64_t)>& task_;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
};

class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads) : arena_(threads) {}

  [[nodiscard]] int threads() const override { return arena_.threads(); }

  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    if (count <= 0) return;
    Batch batch(count, task);
    const auto workers = std::min<std::int64_t>(count, threads());
    arena_.run(static_cast<int>(workers), [&] { batch.work(); });
    batch.rethrow();
  }

 private:
  base::Arena arena_;
};

class SerialExecutor final : public Executor {
 public:
  [[nodiscard]] int threads() const override { return 1; }

  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    for (std::int64_t i = 0; i < count; ++i) task(i);
  }
};

}  // namespace

Executor::~Executor() = default;

std::shared_ptr<Executor> tbb_executor(int threads) {
  if (threads < 0) base::fail("tbb_executor: {} threads; 0 means one per hardware thread", threads);
  return std::make_shared<TbbExecutor>(threads);
}

std::shared_ptr<Executor> serial_executor() { return std::make_shared<SerialExecutor>(); }

}  // namespace treadle
