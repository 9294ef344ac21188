// What mods read, as Python declares it once per function and hands it over in every call.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "treadle/capture.h"

namespace treadle::python {

struct Declared {
  std::string name;
  DType dtype;
  int rank;
};

// What one call binds, in the order declared: memory of Python's, and numbers that are kept here.
struct BoundCaptures {
  std::vector<ConstView> views;
  std::deque<double> reals;
  std::deque<std::int64_t> integers;
};

// Captures of these types without data, for what happens before a call.
std::vector<Capture> unbound(const std::vector<Declared>& declared);

std::vector<Capture> with_names(const std::vector<Declared>& declared, const BoundCaptures& bound);

}  // namespace treadle::python
