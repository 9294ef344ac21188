// Working memory, kept between calls: a warm call allocates nothing for it.
//
//   Scratch::Lease lease = scratch.take();          // a workspace nobody else has
//   lease->carve([&](Carver& carver) {              // called twice: to measure, then with memory
//     queries = carver.take<float>(48 * 64);        // aligned to 64 bytes, contents unknown
//   });
//
// Threads take and return workspaces at any time; there are never more of them than takers at
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "run/blocks.h"

namespace treadle::run {

// Cuts memory into aligned pieces; without memory it measures how much is needed.
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

// The bytes that a carving function takes.
template <class Carve>
std::int64_t measured(const Carve& carve) {
  Carver carver;
  carve(carver);
  return static_cast<std::int64_t>(carver.used());
}

struct Workspace {
  BlockLists lists;  // of KeyBlocks

  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  // Memory for what `carve(Carver&)` takes; what was in it before is lost.
  template <class Carve>
  void carve(const Carve& carve) {
    Carver carver(room(static_cast<std::size_t>(measured(carve))));
    carve(carver);
  }

  // What was in it is lost when it has to grow.
  std::byte* room(std::size_t bytes);
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

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
    ~Lease() { owner_.give_back(std::move(workspace_)); }
    Workspace* operator->() const { return workspace_.get(); }
    Workspace& operator*() const { return *workspace_; }

   private:
    Scratch& owner_;
    std::unique_ptr<Workspace> workspace_;
  };

  Lease take();
  // Bytes of the workspaces that are not taken.
  [[nodiscard]] std::vector<std::size_t> sizes();

 private:
  void give_back(std::unique_ptr<Workspace> workspace);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

}  // namespace treadle::run
