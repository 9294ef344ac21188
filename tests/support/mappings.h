// How many mappings of memory this process has.
#pragma once

#include <fstream>
#include <string>

namespace treadle::test {

inline int count_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

}  // namespace treadle::test
