// In: a key and an object, or a file's bytes. Out: the other.
#include "jit/cache_file.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace treadle::jit {
namespace {

struct Header {
  std::array<char, 8> magic{'t', 'r', 'e', 'a', 'd', 'l', 'e', '\0'};
  std::uint64_t version = 2;
  std::uint64_t key_bytes = 0;
  base::Hash content;  // of the key and the object

  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 40, "written as it lies in memory, so it has no gaps");
static_assert(std::is_trivially_copyable_v<Header>);

Header header_of(const base::Key& key, std::string_view content) {
  return {.key_bytes = key.bytes.size(),
          .content = base::hash_of(std::as_bytes(std::span(content)))};
}

}  // namespace

std::size_t cache_file_overhead(const base::Key& key) { return sizeof(Header) + key.bytes.size(); }

std::string cache_file(const base::Key& key, std::string_view object) {
  std::string file(sizeof(Header), '\0');
  file.reserve(cache_file_overhead(key) + object.size());
  file += key.bytes;
  file += object;
  const Header header = header_of(key, std::string_view(file).substr(sizeof header));
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

std::optional<std::string> cache_file_object(std::string file, const base::Key& key) {
  Header header;
  if (file.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof header);
  const std::string_view content = std::string_view(file).substr(sizeof header);
  if (header != header_of(key, content) || !content.starts_with(key.bytes)) return std::nullopt;
  file.erase(0, cache_file_overhead(key));
  return file;
}

}  // namespace treadle::jit
