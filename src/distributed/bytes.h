// Numbers as bytes, for messages between ranks of one build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "layout/range.h"

namespace treadle::distributed {

class Writer {
 public:
  template <class T>
    requires(std::is_trivially_copyable_v<T>)
  void put(const T& value) {
    put(std::span(&value, 1));
  }
  template <class T>
  void put(std::span<const T> values) {
    const std::span<const std::byte> raw = std::as_bytes(values);
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  // With its length in front.
  template <class T>
  void put_list(const std::vector<T>& values) {
    put(static_cast<std::int64_t>(values.size()));
    put(std::span<const T>(values));
  }

  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool done() const { return bytes_.empty(); }
  template <class T>
    requires(std::is_trivially_copyable_v<T>)
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> get_list() {
    const auto count = static_cast<std::size_t>(get<std::int64_t>());
    if (count > bytes_.size() / sizeof(T)) fail();
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), take(count * sizeof(T)).data(), count * sizeof(T));
    return values;
  }
  // So many bytes, as they lie.
  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size()) fail();
    const std::span<const std::byte> some = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return some;
  }

 private:
  [[noreturn]] static void fail() { base::internal_error("a message between ranks is too short"); }

  std::span<const std::byte> bytes_;
};

}  // namespace treadle::distributed
