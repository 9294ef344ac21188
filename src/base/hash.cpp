// Hashes values with XXH3, seed 0.
//
// In: values in a fixed order. Out: 128 bits that depend on nothing else. Keys are short, so a
// Hasher gathers the bytes and hashes them in one go.
#include "base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <bit>

namespace treadle::base {

std::string to_string(const Hash& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

Hash hash_of(std::span<const std::byte> bytes) {
  // XXH3 wants an address even for no bytes; an empty span may have none.
  const void* data = bytes.empty() ? "" : static_cast<const void*>(bytes.data());
  const XXH128_hash_t hash = XXH3_128bits(data, bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

Key::Key(const Hash& hash) : Key(Hasher().add(hash).key()) {}

Hasher& Hasher::add_word(std::uint64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

Hasher& Hasher::add(double value) { return add_word(std::bit_cast<std::uint64_t>(value)); }

Hasher& Hasher::add(std::string_view text) {
  add_word(text.size());
  bytes_.append(text);
  return *this;
}

Hasher& Hasher::add(const Hash& hash) { return add_word(hash.high).add_word(hash.low); }

Hash Hasher::finish() const { return hash_of(std::as_bytes(std::span(bytes_))); }

}  // namespace treadle::base
