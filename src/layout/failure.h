// Pairs at which a mask fails: it reads outside a capture, or divides by zero.
//
//   if (const auto failure = find_failure(mask, layout, workers)) ...
//   failure->reason    "ids: index 100 along dimension 0 is outside its length 100"
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/parallel.h"
#include "layout/build.h"

namespace treadle::layout {

struct MaskFailure {
  std::int64_t b = 0, h = 0, q = 0, kv = 0;
  std::string reason;
};

// The first one: the first tile of the first batch and head, its lowest query, then the lowest key.
// Only partial runs are looked at, as in a call: elsewhere the mask was decided without failing.
std::optional<MaskFailure> find_failure(const Mask& mask, const Layout& layout,
                                        const base::Workers& workers);

}  // namespace treadle::layout
