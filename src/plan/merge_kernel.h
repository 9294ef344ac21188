// Two states of a tile of queries become one: merge() of run/tile.h, with the machine's vectors.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "plan/target.h"

namespace treadle::plan {

// A state: [width], [width], [value_dim][width].
struct MergeArgs {
  void *maximum = nullptr, *weight = nullptr, *sums = nullptr;  // m, l, O: what becomes both
  const void *part_maximum = nullptr, *part_weight = nullptr, *part_sums = nullptr;
};

struct MergeSpec {
  using Args = MergeArgs;

  Target target;
  DType compute = DType::f32;
  std::int64_t width = 0;  // whole vectors
  std::int64_t value_dim = 0;

  bool operator==(const MergeSpec&) const = default;
};

base::Key key(const MergeSpec& spec);

}  // namespace treadle::plan
