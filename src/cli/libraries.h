// The libraries that the program stands on.
#pragma once

#include <string>
#include <vector>

namespace treadle::cli {

struct Library {
  std::string name;
  std::string version;  // that runs, where the library can tell; else that it was built with
};

std::vector<Library> libraries();

}  // namespace treadle::cli
