// A Descriptor: an open file or folder, closed with it.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

namespace treadle::jit {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  [[nodiscard]] bool is_open() const { return number_ >= 0; }
  [[nodiscard]] int number() const { return number_; }

  bool read(void* to, std::size_t bytes) {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t n = ::read(number_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

  bool write(const void* from, std::size_t bytes) {
    const auto* at = static_cast<const char*>(from);
    while (bytes > 0) {
      const ssize_t n = ::write(number_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

  // A full disk may be noticed only now.
  bool close() {
    const int number = std::exchange(number_, -1);
    return number < 0 || ::close(number) == 0;
  }

 private:
  int number_ = -1;
};

}  // namespace treadle::jit
