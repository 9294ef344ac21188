// Which thread does what:
//
// A quick call, and any call outside of Python's main thread, runs in the calling thread. A longer
// one in the main thread runs in a thread of its own, while the main thread looks for signals: only
// there do their handlers run, and it cannot look while it works or waits for other workers. Read
// run_unlocked() first.
#include "unlocked.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace nb = nanobind;

namespace treadle::python {
namespace {

constexpr auto between_looks = std::chrono::milliseconds(50);
constexpr auto longest_end = std::chrono::seconds(10);

// The calls that have given the lock away and not taken it back.
struct Calls {
  std::mutex mutex;
  std::condition_variable left;
  std::vector<std::stop_source*> running;
  bool ending = false;
  const unsigned long main_thread;

  explicit Calls(unsigned long thread) : main_thread(thread) {}
};

// Never taken down: threads may still be running when statics are.
std::atomic<Calls*> current_calls{nullptr};

[[noreturn]] void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Python's lock, given away.
class Unlocked {
 public:
  explicit Unlocked(std::stop_source& stop)
      : calls_(*current_calls.load()), stop_(stop), is_main_(is_main()) {
    {
      const std::lock_guard lock(calls_.mutex);
      if (calls_.ending && !is_main_) return;
      calls_.running.push_back(&stop_);
    }
    state_ = PyEval_SaveThread();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    if (state_ == nullptr) return;
    if (!is_main_) {
      std::unique_lock lock(calls_.mutex);
      if (calls_.ending) {
        leave();
        lock.unlock();
        sleep_for_ever();
      }
    }
    // Still one of the running calls: the end waits until the lock is taken.
    PyEval_RestoreThread(state_);
    const std::lock_guard lock(calls_.mutex);
    leave();
  }

  [[nodiscard]] bool in_main_thread() const { return is_main_; }

  // Keeps the error that a handler of a signal has raised meanwhile. Only in the main thread.
  void look_for_signals(std::optional<nb::python_error>& raised) {
    PyEval_RestoreThread(state_);
    if (PyErr_CheckSignals() != 0) raised.emplace();
    state_ = PyEval_SaveThread();
  }

 private:
  [[nodiscard]] bool is_main() const { return PyThread_get_thread_ident() == calls_.main_thread; }
  void leave() {
    std::erase(calls_.running, &stop_);
    calls_.left.notify_all();
  }

  Calls& calls_;
  std::stop_source& stop_;
  const bool is_main_;
  PyThreadState* state_ = nullptr;  // null: the lock is kept
};

// The work in a thread of its own, the signals in this one.
class Watched {
 public:
  Watched(const Work& work, std::stop_source& stop)
      : thread_([this, &work, &stop] {
          try {
            work(stop.get_token());
          } catch (...) {
            failure_ = std::current_exception();
          }
          const std::lock_guard lock(mutex_);
          done_ = true;
          changed_.notify_one();
        }) {}
  ~Watched() { thread_.join(); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // False after a while.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, between_looks, [&] { return done_; });
  }
  // When it is done.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

void run_unlocked(Length length, const Work& work) {
  std::stop_source stop;
  std::optional<nb::python_error> raised;  // outlives Unlocked: it needs the lock
  {
    Unlocked unlocked(stop);
    std::optional<Watched> watched;
    if (length == Length::unknown && unlocked.in_main_thread()) {
      try {
        watched.emplace(work, stop);
      } catch (const std::system_error&) {  // no more threads: it is done without
      }
    }
    if (!watched) return work(stop.get_token());
    while (!watched->wait()) {
      if (raised) continue;  // it ends as soon as it can
      unlocked.look_for_signals(raised);
      if (raised) stop.request_stop();
    }
    if (!raised) watched->rethrow();
  }
  if (raised) throw nb::python_error(std::move(*raised));
}

void end_calls() {
  Calls& calls = *current_calls.load();
  PyThreadState* state = PyEval_SaveThread();
  {
    std::unique_lock lock(calls.mutex);
    calls.ending = true;
    for (std::stop_source* stop : calls.running) stop->request_stop();
    calls.left.wait_for(lock, longest_end, [&] { return calls.running.empty(); });
  }
  PyEval_RestoreThread(state);
}

void begin_calls(unsigned long main_thread) { current_calls = new Calls(main_thread); }

}  // namespace treadle::python
