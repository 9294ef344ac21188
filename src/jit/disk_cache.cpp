// A file is a Header and the object.
#include "jit/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace treadle::jit {
namespace {

struct Header {
  std::array<char, 8> magic{'t', 'r', 'e', 'a', 'd', 'l', 'e', '\0'};
  std::uint64_t version = 1;
  base::Hash name;     // as in the file's name, in case it was renamed
  base::Hash content;  // of the object

  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 48, "written as it lies in memory, so it has no gaps");

Header header_of(const base::Hash& name, std::string_view object) {
  return {.name = name, .content = base::hash_of(std::as_bytes(std::span(object)))};
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }

  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

  // Bytes of a regular file that we or root wrote; none of any other.
  [[nodiscard]] std::size_t trusted_size() const {
    struct stat about = {};
    if (fstat(descriptor_, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
    if (about.st_uid != geteuid() && about.st_uid != 0) return 0;
    return static_cast<std::size_t>(about.st_size);
  }

  bool read(void* to, std::size_t bytes) {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t n = ::read(descriptor_, at, bytes);
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
      const ssize_t n = ::write(descriptor_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

  // A full disk may be noticed only now.
  bool close() {
    const int descriptor = std::exchange(descriptor_, -1);
    return descriptor < 0 || ::close(descriptor) == 0;
  }

 private:
  int descriptor_;
};

}  // namespace

std::string DiskCache::path_of(const base::Hash& name) const {
  return fmt::format("{}/{}.o", folder_, to_string(name));
}

std::optional<std::string> DiskCache::read(const base::Hash& name) const {
  if (folder_.empty()) return std::nullopt;
  // Not blocking, in case it is a pipe.
  File file(open(path_of(name).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const std::size_t bytes = file.is_open() ? file.trusted_size() : 0;
  if (bytes < sizeof(Header)) return std::nullopt;
  Header header;
  std::string object(bytes - sizeof(Header), '\0');
  if (!file.read(&header, sizeof header) || !file.read(object.data(), object.size()) ||
      header != header_of(name, object)) {
    return std::nullopt;
  }
  return object;
}

void DiskCache::write(const base::Hash& name, std::string_view object) const {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);

  const std::string path = path_of(name);
  std::string temporary = path + ".XXXXXX";
  File file(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.is_open()) return;
  const Header header = header_of(name, object);
  const bool written = file.write(&header, sizeof header) &&
                       file.write(object.data(), object.size()) && file.close();
  if (!written || rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

}  // namespace treadle::jit
