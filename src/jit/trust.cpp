// Opens first, then looks at what was opened.
#include "jit/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

namespace treadle::jit {
namespace {

constexpr mode_t others_may_write = S_IWGRP | S_IWOTH;

// Empty when it may be used.
std::string problem_of(const struct stat& about) {
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return fmt::format("it belongs to user {}, neither to us ({}) nor to root", about.st_uid,
                       geteuid());
  }
  if ((about.st_mode & others_may_write) != 0) {
    return fmt::format("its mode is {:04o}: others may write it, and what is in it would be run",
                       about.st_mode & 07777U);
  }
  return {};
}

// Whatever the umask says, nobody else gets in.
bool make_folders(const std::filesystem::path& path) {
  if (mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return true;
  const std::filesystem::path above = path.parent_path();
  if (errno != ENOENT || above.empty() || above == path || !make_folders(above)) return false;
  return mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST;
}

}  // namespace

OpenFolder open_folder(const std::string& path) {
  OpenFolder folder;
  Descriptor descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open()) {
    folder.problem = errno == ENOENT ? "it is not there" : std::strerror(errno);
    return folder;
  }
  struct stat about = {};
  if (fstat(descriptor.number(), &about) != 0) {
    folder.problem = std::strerror(errno);
    return folder;
  }
  folder.problem = problem_of(about);
  if (!folder.problem.empty()) return folder;
  folder.writable = faccessat(descriptor.number(), ".", W_OK, AT_EACCESS) == 0;
  folder.descriptor = std::move(descriptor);
  return folder;
}

OpenFolder make_folder(const std::string& path) {
  make_folders(path);
  return open_folder(path);
}

OpenFile open_file(int folder, const std::string& name) {
  OpenFile file;
  // Not blocking, in case it is a pipe.
  Descriptor descriptor(
      openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat about = {};
  if (!descriptor.is_open() || fstat(descriptor.number(), &about) != 0 || !S_ISREG(about.st_mode) ||
      !problem_of(about).empty()) {
    return file;
  }
  file.descriptor = std::move(descriptor);
  file.bytes = about.st_size;
  file.modified = about.st_mtim.tv_sec;
  return file;
}

}  // namespace treadle::jit
