// Working memory, kept between calls: a warm call allocates nothing for it.
//
//   Scratch::Lease lease = scratch.take();          // a workspace nobody else has
//   std::byte* room = lease->room(bytes);            // aligned to 64 bytes, contents unknown
//
// Threads take and give back workspaces at any time; there are never more of them than takers at
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace treadle::run {

// Keys begin .. end of a block of keys, whose places in the block begin at `position`.
struct Segment {
  std::int64_t begin = 0, end = 0, position = 0;
};

// Places begin .. end of a block that a tile has to look at, all full or all partial.
struct Stretch {
  std::int64_t begin = 0, end = 0;
  bool full = false;
};

struct Workspace {
  std::vector<Segment> wanted;  // keys that a group of tiles has to look at
  std::vector<Segment> block;   // those of the current block
  std::vector<Stretch> stretches;

  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  // What was in it is lost when it has to grow.
  std::byte* room(std::size_t bytes);

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

class Scratch {
 public:
  class Lease {
   public:
    Lease(Scratch& owner, std::unique_ptr<Workspace> workspace)
        : owner_(owner), workspace_(std::move(workspace)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { owner_.give(std::move(workspace_)); }
    Workspace* operator->() const { return workspace_.get(); }
    Workspace& operator*() const { return *workspace_; }

   private:
    Scratch& owner_;
    std::unique_ptr<Workspace> workspace_;
  };

  Lease take();

 private:
  void give(std::unique_ptr<Workspace> workspace);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

// Cuts a block into aligned pieces; first without memory, to learn how much is needed.
class Carver {
 public:
  explicit Carver(std::byte* memory = nullptr) : memory_(memory) {}

  template <class T>
  T* take(std::int64_t count) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace treadle::run
