// A stable 128-bit content hash: the name of whatever is cached.
//
//   Hash key = Hasher().add("causal").add(64).add(0.125).finish();
//   to_string(key)   // 32 hex digits
//
// The same in every run and on every machine of one endianness. Integers of every width enter as 8
// bytes, texts with their length in front, doubles by their bits: ("ab", "c") and ("a", "bc")
// differ, 0.0 and -0.0 differ, int 1 and long 1 do not.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace treadle::base {

struct Hash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  auto operator<=>(const Hash&) const = default;
};

std::string to_string(const Hash& hash);

// Of the bytes alone, as in the check of a cached file.
Hash hash_of(std::span<const std::byte> bytes);

// What was hashed, in full. A hash can be made to collide by who chooses what is hashed; two equal
// keys are of equal things.
struct Key {
  std::string bytes;

  Key() = default;
  explicit Key(std::string all) : bytes(std::move(all)) {}
  Key(const Hash& hash);  // NOLINT: a hash does where nobody would look for another of its kind

  [[nodiscard]] Hash hash() const { return hash_of(std::as_bytes(std::span(bytes))); }
  bool operator==(const Key&) const = default;
};

class Hasher {
 public:
  template <class T>
    requires(std::integral<T> || std::is_enum_v<T>)
  Hasher& add(T value) {
    return add_word(static_cast<std::uint64_t>(value));
  }
  Hasher& add(double value);
  Hasher& add(std::string_view text);
  Hasher& add(const char* text) { return add(std::string_view(text)); }
  Hasher& add(const Hash& hash);
  Hasher& add(const Key& key) { return add(std::string_view(key.bytes)); }

  // The hash of what was added so far; adding may go on.
  [[nodiscard]] Hash finish() const;
  // The same, in full: finish() == key().hash().
  [[nodiscard]] Key key() const { return Key(bytes_); }

 private:
  Hasher& add_word(std::uint64_t value);

  std::string bytes_;
};

}  // namespace treadle::base

template <>
struct std::hash<treadle::base::Hash> {
  std::size_t operator()(const treadle::base::Hash& hash) const noexcept {
    return static_cast<std::size_t>(hash.low);  // well mixed already
  }
};

template <>
struct std::hash<treadle::base::Key> {
  std::size_t operator()(const treadle::base::Key& key) const noexcept {
    return static_cast<std::size_t>(key.hash().low);
  }
};
