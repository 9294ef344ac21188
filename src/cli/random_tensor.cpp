// Evenly distributed rather than normal: std::normal_distribution differs between standard
// libraries.
#include "cli/random_tensor.h"

#include <cmath>
#include <random>

namespace treadle::cli {

Tensor random_tensor(const Dims& shape, std::uint64_t seed, double deviation) {
  Tensor tensor(DType::f32, shape);
  std::mt19937_64 random(seed);
  const double reach = deviation * std::sqrt(3.0);
  for (float& x : tensor.data<float>()) {
    const double between_0_and_1 = static_cast<double>(random() >> 11U) * 0x1p-53;
    x = static_cast<float>(reach * (2 * between_0_and_1 - 1));
  }
  return tensor;
}

}  // namespace treadle::cli
