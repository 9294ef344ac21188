// Made-up data.
#pragma once

#include <cstdint>

#include "treadle/tensor.h"

namespace treadle::cli {

// Numbers of f32 with mean 0 and the given standard deviation. The same seed gives the same bits on
// every machine.
Tensor random_tensor(const Dims& shape, std::uint64_t seed, double deviation = 1);

}  // namespace treadle::cli
