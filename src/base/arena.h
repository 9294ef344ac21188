// A limited number of threads, borrowed from oneTBB. Everything that knows oneTBB is behind this
// file.
//
//   Arena arena(4);
//   arena.run(4, work);   // work() four times, on up to four threads, the caller's included
#pragma once

#include <functional>
#include <memory>

namespace treadle::base {

class Arena {
 public:
  explicit Arena(int threads);  // 0 = one per hardware thread
  ~Arena();

  [[nodiscard]] int threads() const;

  // Returns when every call has. If threads are busy elsewhere, fewer make more of the calls; at
  // worst the calling thread makes all of them. work must not throw.
  void run(int calls, const std::function<void()>& work);

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace treadle::base
