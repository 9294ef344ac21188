// The executors: tasks on the threads of oneTBB, or on the caller's own. And Workers, which a call
// trusts more than an executor that somebody else wrote.
//
// In: a number of tasks. Out: all of them done. Each thread takes the next number until none is
// left, so tasks start in ascending order. Read Batch::one() first.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <thread>

#include "base/arena.h"
#include "base/error.h"
#include "base/no_fork.h"

namespace treadle {
namespace {

// The tasks of one run() and what became of them, shared by the threads that work on it.
class Batch {
 public:
  Batch(std::int64_t count, const std::function<void(std::int64_t)>& task)
      : count_(count), task_(task) {}

  // Takes the next task; false if none is left. Never throws.
  bool one() {
    inside_.fetch_add(1, std::memory_order_relaxed);
    const std::int64_t i = take();
    if (i < count_) {
      try {
        task_(i);
      } catch (...) {
        fail(std::current_exception());
      }
    }
    inside_.fetch_sub(1, std::memory_order_release);
    return i < count_;
  }

  // Takes tasks until none is left.
  void work() {
    while (one()) {
    }
  }

  // No new task begins; the first failure is kept.
  void fail(std::exception_ptr failure) {
    next_.store(count_, std::memory_order_relaxed);
    if (!failed_.exchange(true)) failure_ = std::move(failure);
  }

  // Returns when no thread is in a task. Threads should have left them already; one that has not
  // is not worth more than waiting like this.
  void wait() const {
    while (inside_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  }

  // Only after every thread has left its task.
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
  std::atomic<std::int64_t> inside_ = 0;  // threads that have a task, or look for one
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
};

// A forked child has oneTBB's memory but none of its threads. Whether it is one: the first to use
// them writes down in which process they are.
bool threads_are_elsewhere() {
  static std::atomic<std::uint64_t> home = 0;  // 1 + forks(); 0: nobody used them yet
  const std::uint64_t process = base::forks() + 1;
  std::uint64_t threads = home.load(std::memory_order_relaxed);
  if (threads == 0 && home.compare_exchange_strong(threads, process)) threads = process;
  return threads != process;
}

class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads) : arena_(threads) {}

  [[nodiscard]] int threads() const override {
    return threads_are_elsewhere() ? 1 : arena_.threads();
  }

  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    if (count <= 0) return;
    if (threads_are_elsewhere()) {
      for (std::int64_t i = 0; i < count; ++i) task(i);
      return;
    }
    Batch batch(count, task);
    const auto workers = std::min<std::int64_t>(count, threads());
    try {
      arena_.run(static_cast<int>(workers), [&] { batch.work(); });
    } catch (const std::bad_alloc&) {
      batch.work();  // oneTBB has no memory to share the work: this thread is enough
    }
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

namespace base {

void Workers::throw_stopped() { throw Stopped("the call was stopped"); }

void Workers::run(std::int64_t count, const std::function<void(std::int64_t)>& task) const {
  const auto unless_stopped = [&](std::int64_t i) {
    check();
    task(i);
  };
  const std::function<void(std::int64_t)> checked = std::ref(unless_stopped);
  Batch batch(count, checked);
  try {
    executor_.run(count, [&batch](std::int64_t) { batch.one(); });
  } catch (...) {
    batch.fail(std::current_exception());
  }
  batch.work();
  batch.wait();
  batch.rethrow();
}

}  // namespace base
}  // namespace treadle
