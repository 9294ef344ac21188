// The machine the program runs on, as `treadle info` tells it.
#pragma once

#include <string>

namespace treadle::cli {

struct Machine {
  std::string architecture;  // x86_64, aarch64, ...
  std::string cpu;           // the name its maker gave it, or "unknown"
  std::string
      vector_extensions;  // those found, separated by spaces; "none known" if there are none
  int cores = 0;          // that this process may use
};

Machine this_machine();

}  // namespace treadle::cli
