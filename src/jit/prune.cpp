// In: a folder. Out: the same with fewer files. Read prune() first.
#include "jit/prune.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <string_view>
#include <vector>

#include "jit/trust.h"

namespace treadle::jit {
namespace {

constexpr const char* stamp_name = "pruned";
constexpr std::int64_t seconds_between = 3600;  // of two prunings
constexpr std::int64_t longest_writing = 3600;  // seconds

struct CachedFile {
  std::string name;
  bool temporary = false;
  std::int64_t bytes = 0, used = 0;  // seconds since 1970
};

// 32 hex digits and ".o"; while it is being written, something more after another dot.
bool is_ours(std::string_view name) {
  constexpr std::size_t digits = 32;
  if (name.size() < digits + 2 || name.substr(digits, 2) != ".o") return false;
  if (name.size() > digits + 2 && name[digits + 2] != '.') return false;
  return std::ranges::all_of(name.substr(0, digits), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

std::vector<CachedFile> files_in(int folder) {
  std::vector<CachedFile> files;
  // The list reads on from where its descriptor stands, so it gets one of its own.
  const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(again < 0 ? nullptr : fdopendir(again), closedir);
  if (!list) return files;
  while (const dirent* entry = readdir(list.get())) {
    const std::string_view name = entry->d_name;
    struct stat about = {};
    if (!is_ours(name) || fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
        S_ISDIR(about.st_mode)) {
      continue;
    }
    files.push_back({.name = std::string(name),
                     .temporary = !name.ends_with(".o"),
                     .bytes = about.st_size,
                     .used = about.st_mtim.tv_sec});
  }
  return files;
}

// Whether it is time, and if so, tells others that we do it.
bool take_turn(int folder, std::int64_t now) {
  struct stat about = {};
  const bool before = fstatat(folder, stamp_name, &about, AT_SYMLINK_NOFOLLOW) == 0;
  // A clock that was set back must not stop it for ever.
  if (before && now - about.st_mtim.tv_sec < seconds_between && about.st_mtim.tv_sec <= now) {
    return false;
  }
  const Descriptor stamp(
      openat(folder, stamp_name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  return stamp.is_open() && futimens(stamp.number(), nullptr) == 0;
}

std::int64_t prune(int folder, const CacheLimits& limits, std::int64_t now) {
  std::vector<CachedFile> files = files_in(folder);
  std::ranges::sort(files, {}, &CachedFile::used);
  std::int64_t bytes = 0, removed = 0;
  for (const CachedFile& file : files) bytes += file.temporary ? 0 : file.bytes;
  for (const CachedFile& file : files) {
    const std::int64_t idle = now - file.used;
    const bool go =
        file.temporary ? idle > longest_writing : idle > limits.age.count() || bytes > limits.bytes;
    if (!go) continue;
    if (!file.temporary) bytes -= file.bytes;
    if (unlinkat(folder, file.name.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

}  // namespace

CacheContents contents_of(const std::string& folder) {
  const OpenFolder open = open_folder(folder);
  CacheContents contents{.problem = open.problem, .writable = open.writable};
  if (!open.descriptor.is_open()) return contents;
  for (const CachedFile& file : files_in(open.descriptor.number())) {
    if (file.temporary) {
      ++contents.temporary;
    } else {
      ++contents.files;
      contents.bytes += file.bytes;
    }
  }
  return contents;
}

std::int64_t prune(const std::string& folder, const CacheLimits& limits) {
  const OpenFolder open = open_folder(folder);
  return open.writable ? prune(open.descriptor.number(), limits, std::time(nullptr)) : 0;
}

void prune_if_due(const std::string& folder, const CacheLimits& limits) {
  const OpenFolder open = open_folder(folder);
  const std::int64_t now = std::time(nullptr);
  if (!open.writable || !take_turn(open.descriptor.number(), now)) return;
  prune(open.descriptor.number(), limits, now);
}

std::int64_t clear(const std::string& folder) {
  const OpenFolder open = open_folder(folder);
  if (!open.writable) return 0;
  std::int64_t removed = 0;
  for (const CachedFile& file : files_in(open.descriptor.number())) {
    if (unlinkat(open.descriptor.number(), file.name.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

}  // namespace treadle::jit
