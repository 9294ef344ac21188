// What kernels that drop weights are told about the call (base/dropout.h). Whether a kernel drops
// weights at all is part of its spec.
#pragma once

#include <cstdint>

#include "base/dropout.h"

namespace treadle::plan {

struct DropoutArgs {
  std::int64_t key_low = 0, key_high = 0;  // of Philox
  std::int64_t threshold = 0;              // pairs with fewer bits are dropped
  double scale = 1;                        // of what is kept

  DropoutArgs() = default;
  // Null: nothing is dropped.
  explicit DropoutArgs(const base::DropoutRule* rule) {
    if (rule != nullptr) *this = DropoutArgs(*rule);
  }
  explicit DropoutArgs(const base::DropoutRule& rule)
      : key_low(rule.key[0]), key_high(rule.key[1]), threshold(rule.threshold), scale(rule.scale) {}
};

}  // namespace treadle::plan
