// The header of the file that perf reads code from.
#include "jit/perf_header.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace treadle::jit {
namespace {

std::string find_file() {
  const std::string name = fmt::format("/jit-{}.dump", getpid());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(name)) return line.substr(line.find('/'));
  }
  return {};
}

}  // namespace

void clear_perf_flags() {
  constexpr off_t place = 32;  // after magic, version, size, machine, padding, process and time
  const std::uint64_t none = 0;
  const int file = open(find_file().c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  // A file that cannot be repaired is one that perf refuses, no reason to stop.
  [[maybe_unused]] const ssize_t written = pwrite(file, &none, sizeof none, place);
  close(file);
}

}  // namespace treadle::jit
