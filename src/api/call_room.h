// What a call leaves for the next one: memory that has grown to what calls need.
#pragma once

#include <vector>

#include "api/positions.h"
#include "backend/backend.h"
#include "treadle/attention.h"

namespace treadle::api {

struct CallRoom {
  std::vector<double> sinks;
  std::vector<const Capture*> bound;
  backend::Bindings bindings;
  std::vector<Part> parts;
};

}  // namespace treadle::api
