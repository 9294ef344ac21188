// A gate with a counter of those inside. Who wants to fork or to exit closes it and waits until
// nobody is inside. Waiting is done by sleeping: it is rare, and a mutex or a condition variable
// would itself be cut in two by the fork.
#include "base/no_fork.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace treadle::base {
namespace {

struct Gate {
  std::atomic<int> inside = 0;   // threads
  std::atomic<int> closers = 0;  // closed if any
  std::atomic<bool> ending = false;
  std::atomic<bool> torn = false;
  std::atomic<std::uint64_t> forks = 0;
};

// How many NoForks this thread is under; whether it is the one that runs exit(), or works for one
// that is inside. Either need not ask at the gate.
struct Here {
  int depth = 0;
  bool exits = false, within = false;
  bool tears = false;  // it forks, and others are inside

  [[nodiscard]] bool counts() const { return !exits && !within; }
};
Here& here() {
  thread_local Here thread;
  return thread;
}

constexpr auto longest_wait = std::chrono::seconds(10);

// Whether done() came true in time.
template <class Done>
bool wait_until(const Done& done) {
  const auto start = std::chrono::steady_clock::now();
  while (!done()) {
    if (std::chrono::steady_clock::now() - start > longest_wait) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

Gate& gate();

int my_part() { return here().depth > 0 && here().counts() ? 1 : 0; }

// Whether nobody is inside any more. Threads that find the gate closed still count for a moment.
bool close_and_wait() {
  ++gate().closers;
  return wait_until([] { return gate().inside == my_part(); });
}

void before_fork() { here().tears = !close_and_wait(); }
void after_fork_in_parent() { --gate().closers; }
void after_fork_in_child() {
  Gate& all = gate();
  if (here().tears) all.torn = true;
  all.inside = my_part();
  all.closers = 0;  // another thread may have been about to fork as well
  ++all.forks;
}

// exit() runs this before the destructors of statics that were made before it was registered, and
// the main thread's exit() before all of them.
void before_end() {
  if (gate().ending.exchange(true)) return;
  close_and_wait();
  here().exits = true;
}

Gate& gate() {
  static Gate* const one = [] {
    auto* made = new Gate;  // never taken down: threads may still be running when statics are
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return made;
  }();
  return *one;
}

void enter() {
  Gate& all = gate();
  while (true) {
    ++all.inside;
    if (all.closers == 0) return;
    --all.inside;
    // When the process ends the gate stays closed. A thread that exit() waits for, against all
    // advice, goes on after a while.
    if (!wait_until([&] { return all.closers == 0; }) && all.ending) break;
  }
  ++all.inside;
}

// exit() destroys what is local to its thread before it runs any handler or destroys any static, so
// there it can wait for work that has just made a static. Only for the main thread does this mean
// that the process ends: pthread_exit() destroys nothing there. A thread cannot be watched by
// another, so it is done when this library is loaded.
struct AtExitOfThread {
  ~AtExitOfThread() { before_end(); }
};
[[maybe_unused]] const bool main_thread_is_watched = [] {
  gate();  // made before there are threads: one that made it while another forks would hang the child
  if (gettid() != getpid()) return false;
  [[maybe_unused]] thread_local const AtExitOfThread watch;
  return true;
}();

}  // namespace

NoFork::NoFork() {
  Here& thread = here();
  if (thread.depth == 0 && thread.counts()) enter();
  ++thread.depth;
}

NoFork::NoFork(Within /*of another*/) {
  here().within = true;
  ++here().depth;
}

NoFork::~NoFork() {
  Here& thread = here();
  if (--thread.depth > 0) return;
  if (thread.counts()) --gate().inside;
  thread.within = false;
}

bool NoFork::is_here() { return here().depth > 0 || here().exits; }

void NoFork::abandon() {
  if (here().counts()) --gate().inside;
  here() = {};
}

void wait_at_exit() { std::atexit(before_end); }

std::uint64_t forks() { return gate().forks; }

bool torn_by_fork() { return gate().torn; }

}  // namespace treadle::base
