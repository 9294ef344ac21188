// A file is named by a hash of the key; the key itself, which is in it, decides (jit/cache_file.h).
#include "jit/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdio>
#include <ctime>
#include <new>
#include <utility>

#include "jit/cache_file.h"
#include "jit/trust.h"

namespace treadle::jit {
namespace {

// How old the last use may look: a file that is read often is not written for each time.
constexpr std::int64_t seconds_untouched = 600;

// The object, if this is its file.
std::optional<std::string> object_in(OpenFile& file, const base::Key& key) {
  const auto least = static_cast<std::int64_t>(cache_file_overhead(key));
  if (file.bytes < least || file.bytes > largest_cache_file) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(file.bytes), '\0');
  if (!file.descriptor.read(bytes.data(), bytes.size())) return std::nullopt;
  return cache_file_object(std::move(bytes), key);
}

// A write beyond the limit would be answered with a signal, which by default ends the process.
bool may_write(std::size_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
  return limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

// A name that nobody else has: also not a process of the same number on another machine.
std::optional<std::string> temporary_name(const std::string& name) {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) return std::nullopt;
  return fmt::format("{}.{:016x}", name, number);
}

}  // namespace

std::string cache_file_name(const base::Key& key) { return to_string(key.hash()) + ".o"; }

std::optional<std::string> DiskCache::read(const base::Key& key) const {
  if (folder_.empty()) return std::nullopt;
  const OpenFolder folder = open_folder(folder_);
  if (!folder.descriptor.is_open()) return std::nullopt;
  OpenFile file = open_file(folder.descriptor.number(), cache_file_name(key));
  if (!file.descriptor.is_open()) return std::nullopt;
  try {
    std::optional<std::string> object = object_in(file, key);
    if (object && file.modified + seconds_untouched < std::time(nullptr)) {
      futimens(file.descriptor.number(), nullptr);  // of another's file it stays as it is
    }
    return object;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

void DiskCache::write(const base::Key& key, std::string_view object) const {
  const std::size_t bytes = cache_file_overhead(key) + object.size();
  if (folder_.empty() || bytes > largest_cache_file || !may_write(bytes)) return;
  const OpenFolder folder = make_folder(folder_);
  if (!folder.descriptor.is_open() || !folder.writable) return;
  const int at = folder.descriptor.number();
  const std::string name = cache_file_name(key);
  const std::optional<std::string> temporary = temporary_name(name);
  if (!temporary) return;

  Descriptor file(openat(at, temporary->c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file.is_open()) return;
  const std::string content = cache_file(key, object);
  const bool written = file.write(content.data(), content.size()) && file.close();
  if (!written || renameat(at, temporary->c_str(), at, name.c_str()) != 0) {
    unlinkat(at, temporary->c_str(), 0);
  }
}

void DiskCache::remove(const base::Key& key) const {
  if (folder_.empty()) return;
  const OpenFolder folder = open_folder(folder_);
  if (!folder.descriptor.is_open()) return;
  unlinkat(folder.descriptor.number(), cache_file_name(key).c_str(), 0);
}

}  // namespace treadle::jit
