// Carriage return and "erase to the end of the line": every terminal knows these two.
#include "cli/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

namespace treadle::cli {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { show(""); }

void Progress::show(std::string_view text) const {
  if (terminal_) fmt::print(stderr, "\r\033[K{}", text);
}

}  // namespace treadle::cli
