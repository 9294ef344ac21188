// A thread without a handler for bad_alloc. The search for a handler comes before any unwinding, and
// when it finds none std::terminate is called where the exception was thrown; our terminate handler
// stops the thread there. LLVM's own reports, of a malloc that failed or of an error that it cannot
// handle, come through handlers of LLVM and end the same way.
#include "jit/llvm_thread.h"

#include <llvm/Support/ErrorHandling.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/no_fork.h"

namespace treadle::jit {
namespace {

struct Job {
  enum class End { done, no_memory, gave_up };

  const std::function<void()>& work;
  bool within = base::NoFork::is_here();  // the caller
  std::exception_ptr failure = nullptr;
  End end = End::done;
  std::array<char, 512> message{};
  std::binary_semaphore ended{0};
};

// What this thread is working on, if it is one of ours.
Job*& current_job() {
  thread_local Job* job = nullptr;
  return job;
}

std::atomic<bool>& lost() {
  static std::atomic<bool> is_lost = false;
  return is_lost;
}

// Allocates nothing, and touches nothing of the job once it has told its end.
[[noreturn]] void stop_here(Job::End end, const char* message) {
  Job& job = *std::exchange(current_job(), nullptr);
  lost() = true;
  job.end = end;
  std::strncpy(job.message.data(), message, job.message.size() - 1);
  base::NoFork::abandon();
  job.ended.release();
  while (true) pause();
}

std::atomic<std::terminate_handler>& next_terminate_handler() {
  static std::atomic<std::terminate_handler> next = nullptr;
  return next;
}

[[noreturn]] void on_terminate() {
  if (current_job() != nullptr && std::current_exception() != nullptr) {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      stop_here(Job::End::no_memory, "");
    } catch (...) {  // not ours to explain
    }
  }
  if (const std::terminate_handler next = next_terminate_handler()) next();
  std::abort();
}

void on_llvm_out_of_memory(void* /*data*/, const char* reason, bool /*diagnose*/) {
  if (current_job() != nullptr) stop_here(Job::End::no_memory, "");
  std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
}

void on_llvm_error(void* /*data*/, const char* reason, bool /*diagnose*/) {
  if (current_job() != nullptr) stop_here(Job::End::gave_up, reason);
  std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
}

// The terminate handler each time: a program may have set its own meanwhile.
void set_handlers() {
  static const bool once = [] {
    llvm::install_bad_alloc_error_handler(on_llvm_out_of_memory);
    llvm::install_fatal_error_handler(on_llvm_error);
    return true;
  }();
  (void)once;
  if (const auto before = std::set_terminate(on_terminate); before != on_terminate) {
    next_terminate_handler() = before;
  }
}

// LLVM makes statics when it first needs them, and what was made last is destroyed first. The first
// compiles make nearly all of them. The main thread's exit() waits before all that; another thread's
// finds, during the very first compile of a process, statics that are destroyed before it waits, and
// may still end in a fault.
void expect_exit() {
  static std::atomic<std::uint64_t> jobs = 0;
  const std::uint64_t job = ++jobs;
  if (job <= 64 || std::has_single_bit(job)) base::wait_at_exit();
}

void run(Job& job) {
  std::optional<base::NoFork> whole;
  job.within ? whole.emplace(base::NoFork::Within()) : whole.emplace();
  set_handlers();
  current_job() = &job;
  // These two and no others, least of all catch (...): see above.
  try {
    job.work();
  } catch (const std::runtime_error&) {
    job.failure = std::current_exception();
  } catch (const std::logic_error&) {
    job.failure = std::current_exception();
  }
  current_job() = nullptr;
  expect_exit();
}

extern "C" void* run_job(void* data) {
  Job& job = *static_cast<Job*>(data);
  run(job);
  job.ended.release();
  return nullptr;
}

// Signals are for the program's own threads; faults are not ours to hold back.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// LLVM recurses, and threads of a pool may have little room. A system that allows less gives less.
constexpr std::size_t stack_bytes = std::size_t{8} << 20;

pthread_t start(Job& job) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread;
  const SignalsBlocked blocked;
  const int failed = pthread_create(&thread, &attributes, run_job, &job);
  pthread_attr_destroy(&attributes);
  if (failed != 0) base::fail("jit: no thread to compile on: {}", std::strerror(failed));
  return thread;
}

void check_not_lost() {
  if (lost()) {
    base::fail(
        "jit: an earlier compile failed inside LLVM, for lack of memory or by a bug; this process "
        "can use the kernels that it has, but make no new ones");
  }
  if (base::torn_by_fork()) {
    base::fail(
        "jit: this process was forked while another thread compiled for more than ten seconds; it "
        "can use the kernels that it has, but make no new ones");
  }
}

}  // namespace

bool llvm_is_lost() { return lost() || base::torn_by_fork(); }

void in_llvm(const std::function<void()>& work) {
  if (current_job() != nullptr) return work();
  check_not_lost();
  auto job = std::make_unique<Job>(work);
  const pthread_t thread = start(*job);
  job->ended.acquire();
  if (job->end == Job::End::done) {
    pthread_join(thread, nullptr);
    if (job->failure) std::rethrow_exception(job->failure);
    return;
  }
  pthread_detach(thread);
  const Job& stopped = *job.release();  // its thread may still be leaving release()
  if (stopped.end == Job::End::no_memory) throw std::bad_alloc();
  base::internal_error("jit: LLVM gave up: {}", stopped.message.data());
}

}  // namespace treadle::jit
