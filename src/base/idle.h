// Things that wait to be used again: each call takes one that no other call has, and it keeps the
// memory that it has grown.
//
//   Idle<Room> rooms;
//   const auto room = rooms.take();       // one from before, or Room()
//   room->numbers.clear();                // as the last call left it
//
// There are as many as calls were ever running at the same time.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/no_fork.h"

namespace treadle::base {

template <class T>
class Idle {
 public:
  // One thing, for the time of a call.
  class Lease {
   public:
    Lease(Idle& owner, std::unique_ptr<T> thing) : owner_(owner), thing_(std::move(thing)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { owner_.give_back(std::move(thing_)); }
    T* operator->() const { return thing_.get(); }
    T& operator*() const { return *thing_; }

   private:
    Idle& owner_;
    std::unique_ptr<T> thing_;
  };

  Lease take() {
    return take([] { return std::make_unique<T>(); });
  }
  template <class Make>
  Lease take(const Make& make) {
    std::unique_ptr<T> thing;
    {
      const NoFork whole;
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        thing = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (thing == nullptr) {
      thing = make();
      const NoFork whole;
      const std::lock_guard lock(mutex_);
      idle_.reserve(made_ + 1);
      ++made_;
    }
    return {*this, std::move(thing)};
  }

 private:
  void give_back(std::unique_ptr<T> thing) {
    const NoFork whole;
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(thing));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;  // has room for all there are
  std::size_t made_ = 0;
};

}  // namespace treadle::base
