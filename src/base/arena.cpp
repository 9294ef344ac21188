// Calls a function on the threads of oneTBB.
//
// In: a function and how often to call it. Out: the calls made.
//
// ThreadSanitizer cannot see how libtbb.so synchronises and would take every hand-over of work for
// a race. So CMakeLists.txt keeps it out of this file, oneTBB's headers included, it is asked below
// to look away when libtbb.so calls memset or delete, and Handshake says what happens before what:
// all that the caller did before every call, all that the calls did before run returns.
#include "base/arena.h"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <optional>

// NOLINTBEGIN(bugprone-reserved-identifier): the sanitizer's names, null in programs without it
extern "C" [[gnu::weak]] void __tsan_acquire(void* address);
extern "C" [[gnu::weak]] void __tsan_release(void* address);
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libtbb.so\n"; }
// NOLINTEND(bugprone-reserved-identifier)

namespace treadle::base {
namespace {

// All before release() happens before all after the acquire() that follows it.
struct Handshake {
  void release() {
    if (__tsan_release != nullptr) __tsan_release(this);
  }
  void acquire() {
    if (__tsan_acquire != nullptr) __tsan_acquire(this);
  }
};

}  // namespace

struct Arena::Threads {
  std::optional<tbb::global_control> limit;
  tbb::task_arena arena;
};

Arena::Arena(int threads) : threads_(std::make_unique<Threads>()) {
  const int hardware = tbb::info::default_concurrency();
  const int wanted = threads == 0 ? hardware : threads;
  // Beyond the hardware, oneTBB needs to know that this is meant; the setting is the process's.
  if (wanted > hardware) {
    threads_->limit.emplace(tbb::global_control::max_allowed_parallelism,
                            static_cast<std::size_t>(wanted));
  }
  threads_->arena.initialize(wanted);
}

Arena::~Arena() = default;

int Arena::threads() const { return threads_->arena.max_concurrency(); }

void Arena::run(int calls, const std::function<void()>& work) {
  Handshake in;
  Handshake out;
  const auto call = [&](int) {
    in.acquire();
    work();
    out.release();
  };
  in.release();
  threads_->arena.execute([&] {
    // Isolated: a thread that waits here for the last call must not start work of another run
    // meanwhile, which could wait for something that this thread holds.
    tbb::this_task_arena::isolate(
        [&] { tbb::parallel_for(0, calls, call, tbb::simple_partitioner()); });
  });
  out.acquire();
}

}  // namespace treadle::base
