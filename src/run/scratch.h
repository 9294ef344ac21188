// Working memory, kept between calls: a warm call allocates nothing for it.
//
//   Scratch::Share share(scratch, 4, {.bytes = 1 << 20});   // four workspaces, before work begins
//   ...
//   Scratch::Lease workspace = share.lend();                // one that no other task has
//   Carver carver(workspace->memory());
//   queries = carver.take<float>(48 * 64);                  // aligned to 64 bytes, contents unknown
//
// A call takes all that its tasks may need before the first of them begins: what fails, fails
// before anything is written. Workspaces that calls have not needed for a while are freed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <span>
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

// What a task needs at most.
struct WorkspaceNeed {
  std::size_t bytes = 0;
  std::size_t wanted = 0;  // pieces of keys that a group of tiles looks at
  std::size_t block = 0;   // keys of a block

  // Enough for either.
  void cover(const WorkspaceNeed& other) {
    bytes = std::max(bytes, other.bytes);
    wanted = std::max(wanted, other.wanted);
    block = std::max(block, other.block);
  }
};

struct Workspace {
  BlockLists lists;  // of KeyBlocks

  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  // Room for at least that much; what was in it is lost when it has to grow.
  void reserve(const WorkspaceNeed& need);

  [[nodiscard]] std::byte* memory() const { return memory_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Throws InternalError if more was carved than there is.
  void check(const Carver& carver) const;

 private:
  friend class Scratch;

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::int64_t taken_ = 0;  // when: Scratch::clock_
};

class Scratch {
 public:
  class Share;

  // A workspace of a share, for the time of a task.
  class Lease {
   public:
    Lease(Share& share, Workspace& workspace) : share_(share), workspace_(workspace) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    Workspace* operator->() const { return &workspace_; }
    Workspace& operator*() const { return workspace_; }

   private:
    Share& share_;
    Workspace& workspace_;
  };

  // The workspaces of a call. They go back to the pool, which never fails.
  class Share {
   public:
    Share(Scratch& owner, std::int64_t count, const WorkspaceNeed& need);
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share();

    // Allocates only if more than `count` are lent at the same time.
    Lease lend();
    [[nodiscard]] Workspace& front() const { return *all_.front(); }

   private:
    friend class Lease;
    explicit Share(Scratch& owner) : owner_(owner) {}
    void add();

    // Two pointers for each of 32 threads; more are asked for.
    alignas(void*) std::array<std::byte, 2 * 32 * sizeof(void*)> few_;
    std::pmr::monotonic_buffer_resource memory_{few_.data(), few_.size()};
    Scratch& owner_;
    WorkspaceNeed need_;
    std::mutex mutex_;
    std::pmr::vector<std::unique_ptr<Workspace>> all_{&memory_};
    std::pmr::vector<Workspace*> idle_{&memory_};
  };

  // Bytes of the workspaces that no call has.
  [[nodiscard]] std::vector<std::size_t> sizes();
  // Frees them. Returns how many bytes that were.
  std::int64_t release();

 private:
  std::unique_ptr<Workspace> take(const WorkspaceNeed& need);
  void give_back(std::span<std::unique_ptr<Workspace>> workspaces);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;  // has room for all there are
  std::size_t made_ = 0;                          // workspaces, taken or free
  std::int64_t clock_ = 0;                        // shares that were taken
};

}  // namespace treadle::run
