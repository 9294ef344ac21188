// NoFork: while one lives, fork() and exit() of other threads wait.
//
//   const NoFork whole;      // a child gets what follows done, or not begun
//   const std::lock_guard lock(mutex);
//
// A child has the memory of its parent but only the thread that forked: a lock that another thread
// held stays locked, and work that it had begun is never finished. Likewise exit() takes statics
// down under threads that still use them. So what must not be cut in two, such as work inside LLVM,
// is done under a NoFork. Nothing under it may wait for a thread that is not under one itself.
//
// fork() waits ten seconds at most. If it goes on then, the child is torn: it has locks that nobody
// opens.
#pragma once

#include <cstdint>

namespace treadle::base {

class NoFork {
 public:
  struct Within {};

  NoFork();
  // For a thread that works for one that is_here() and waits for it: it is let in by that one.
  explicit NoFork(Within);
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;

  // Whether this thread is under one.
  static bool is_here();
  // For a thread that stops for ever under a NoFork: nobody waits for it any more.
  static void abandon();
};

// exit() waits for NoForks before it destroys any static that was made before this call. That of
// the main thread, if this library was loaded by it, waits before it destroys any static at all.
void wait_at_exit();

// How many forks lie between this process and the one that first asked. Work begun under another
// number is work of a thread that does not exist here.
std::uint64_t forks();

// Whether one of these forks did not wait to the end.
bool torn_by_fork();

}  // namespace treadle::base
