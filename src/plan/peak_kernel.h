// The loop that speed is measured by: multiply-adds between registers, nothing else.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "plan/target.h"

namespace treadle::plan {

struct PeakArgs {
  std::int64_t turns = 0;
  void* numbers = nullptr;  // [0] and [1]: factor and summand; [2] gets a value that depends on all
  std::int64_t* operations = nullptr;  // gets the number of floating-point operations done
};

struct PeakSpec {
  using Args = PeakArgs;

  Target target;
  DType compute = DType::f32;

  bool operator==(const PeakSpec&) const = default;
};

base::Key key(const PeakSpec& spec);

}  // namespace treadle::plan
