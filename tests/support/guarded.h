// Memory with a page behind it, and one before it, that must not be touched.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>

namespace treadle::test {

class Guarded {
 public:
  enum class At { end, begin };  // which of its ends lies at a guard

  Guarded(std::size_t bytes, At at) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inside = (bytes + page - 1) / page * page;
    size_ = inside + 2 * page;
    void* memory = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
    all_ = static_cast<std::byte*>(memory);
    if (mprotect(all_ + page, inside, PROT_READ | PROT_WRITE) != 0) {
      throw std::runtime_error("mprotect failed");
    }
    data_ = all_ + page + (at == At::end ? inside - bytes : 0);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(all_, size_); }

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* all_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace treadle::test
