// A Buffer: bytes on the way, aligned for vectors; what they hold is unknown at first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace treadle::distributed {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t bytes)
      : size_(bytes),
        memory_(
            static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment))) {}

  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {memory_.get(), static_cast<std::size_t>(size_)};
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
  };

  std::int64_t size_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace treadle::distributed
