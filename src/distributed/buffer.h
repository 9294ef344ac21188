// A Buffer: bytes on the way, or of a call, aligned for vectors; what they hold is unknown at first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace treadle::distributed {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t bytes)
      : size_(bytes),
        capacity_(bytes),
        memory_(
            static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment))) {}

  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {memory_.get(), static_cast<std::size_t>(size_)};
  }
  // At most as much as its capacity.
  void resize(std::int64_t bytes) { size_ = bytes; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
  };

  std::int64_t size_ = 0, capacity_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

// Buffers that calls leave for the next one: fresh memory costs a page fault every 4 KiB.
class SpareBuffers {
 public:
  // One that fits well, or a new one.
  Buffer take(std::int64_t bytes) {
    auto best = spare_.end();
    for (auto at = spare_.begin(); at != spare_.end(); ++at) {
      const bool fits = at->capacity() >= bytes && at->capacity() <= 2 * bytes + 4096;
      if (fits && (best == spare_.end() || at->capacity() < best->capacity())) best = at;
    }
    if (best == spare_.end()) return Buffer(bytes);
    Buffer buffer = std::move(*best);
    spare_.erase(best);
    buffer.resize(bytes);
    return buffer;
  }
  // Those of the call before are given up.
  void keep(std::vector<Buffer> buffers) { spare_ = std::move(buffers); }

 private:
  std::vector<Buffer> spare_;
};

}  // namespace treadle::distributed
