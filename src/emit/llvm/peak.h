// The loop that speed is measured by: multiply-adds between registers, nothing else.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "emit/llvm/module.h"
#include "plan/target.h"

namespace treadle::emit {

// turns: how often; numbers: [0] and [1] are factor and summand, [2] gets a value that depends on
// all. Returns the number of floating-point operations done.
using PeakKernel = std::int64_t(std::int64_t turns, void* numbers);

struct PeakSpec {
  plan::Target target;
  DType compute = DType::f32;
};

base::Hash key(const PeakSpec& spec);
Module emit_peak(const PeakSpec& spec);

}  // namespace treadle::emit
