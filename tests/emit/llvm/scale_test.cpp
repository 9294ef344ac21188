// x * 2^n against ldexp, also where powers become too small, on every target that runs here.
#include "emit/llvm/scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "small_kernel.h"

namespace treadle::test {
namespace {

class Scale : public testing::TestWithParam<plan::Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Scale, testing::ValuesIn(every_target()), name_of_target);

emit::llvm::Value* scale_down(emit::llvm::Builder& build, emit::llvm::Value* x,
                              emit::llvm::Value* n) {
  return emit::llvm::scale_down(build, x, n);
}

// The promise of scale.h. run/tile.cpp rescales by powers of the shift's kind.
template <class F>
F expected(const plan::Target& target, F x, F n) {
  constexpr F smallest = std::numeric_limits<F>::min_exponent - 1;  // 2^smallest is normal
  if (n < smallest && !target.avx512) return std::copysign(F{0}, x);
  return std::ldexp(x, static_cast<int>(std::max(n, F{-10000})));
}

template <class F>
void expect_scaled_down(const plan::Target& target) {
  constexpr int smallest = std::numeric_limits<F>::min_exponent - 1;
  std::vector<F> x, n;
  for (const double factor : {1.0, 1.4142135, 0.70710678, 1.9999, 0.5, 3.0, -1.25}) {
    std::vector<double> powers{0, -1, -2, -13, -63, -5000, -1e9};
    for (int i = -60; i <= 3; ++i) powers.push_back(smallest + i);  // to the last subnormal
    powers.push_back(-static_cast<double>(std::numeric_limits<F>::max()));
    for (const double power : powers) {
      x.push_back(static_cast<F>(factor));
      n.push_back(static_cast<F>(power));
    }
  }
  const std::vector<F> got = map_vectors<F>(target, scale_down, x, n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(got[i], expected(target, x[i], n[i])) << x[i] << " * 2^" << n[i];
    EXPECT_EQ(std::signbit(got[i]), std::signbit(x[i])) << x[i] << " * 2^" << n[i];
  }
}

TEST_P(Scale, DownToTheSmallestPowers) {
  expect_scaled_down<float>(GetParam());
  expect_scaled_down<double>(GetParam());
}

TEST_P(Scale, DownByNothingChangesNoBit) {
  const std::vector<float> x{1.0F, 0.1F, 3e38F, 1e-44F, std::numeric_limits<float>::infinity()};
  EXPECT_EQ(map_vectors<float>(GetParam(), scale_down, x, std::vector<float>(x.size())), x);
}

TEST_P(Scale, ANaNStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float n : {0.0F, -3.0F, -500.0F})
    EXPECT_TRUE(std::isnan(map_vectors<float>(GetParam(), scale_down, {nan}, {n})[0])) << n;
}

// One rounding, also where 2^n alone has no float.
TEST_P(Scale, UpAndDownOverTheWholeRange) {
  const Map scale = [](emit::llvm::Builder& build, emit::llvm::Value* x, emit::llvm::Value* n) {
    emit::llvm::Value* integer = build.CreateFPToSI(n, build.vector(build.getInt32Ty()));
    return emit::llvm::scale(build, x, {.integer = integer, .real = n});
  };
  std::vector<float> x, n;
  for (int power = -252; power <= 254; ++power) {
    for (const float factor : {1.0F, 0.5F, 0.7071F, -1.4142F, 2.0F}) {
      x.push_back(factor);
      n.push_back(static_cast<float>(power));
    }
  }
  const std::vector<float> got = map_vectors<float>(GetParam(), scale, x, n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(got[i], std::ldexp(x[i], static_cast<int>(n[i]))) << x[i] << " * 2^" << n[i];
  }
}

}  // namespace
}  // namespace treadle::test
