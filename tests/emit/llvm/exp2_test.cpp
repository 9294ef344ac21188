// Powers of two of the softmax, and rounding, against the C library, on every target that runs
// here.
#include "emit/llvm/exp2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "agreement.h"
#include "fuzz.h"
#include "small_kernel.h"

namespace treadle::test {
namespace {

class Exp2 : public testing::TestWithParam<plan::Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Exp2, testing::ValuesIn(every_target()), name_of_target);

template <class F>
std::vector<F> exp2_below(const plan::Target& target, std::vector<F> s, std::vector<F> m) {
  return map_vectors<F>(target, emit::llvm::exp2_below, std::move(s), std::move(m));
}

// s and a whole m >= s, close enough for a normal result.
template <class F>
std::pair<std::vector<F>, std::vector<F>> scores_and_maxima() {
  std::vector<F> s, m;
  auto random = rng(3);
  for (int i = 0; i < 20'000; ++i) {
    const auto score = static_cast<F>(random_real(random, -100, 100));
    s.push_back(score);
    m.push_back(std::ceil(score) + static_cast<F>(random_int(random, 0, 20)));
  }
  for (int i = -100; i <= 100; ++i) {
    s.push_back(static_cast<F>(i) / 2);
    m.push_back(std::ceil(s.back()));
  }
  return {s, m};
}

template <class F>
void expect_powers(const plan::Target& target, double allowed) {
  const auto [s, m] = scores_and_maxima<F>();
  const std::vector<F> got = exp2_below(target, s, m);
  for (std::size_t i = 0; i < s.size(); ++i) {
    const long double want = std::exp2(static_cast<long double>(s[i]) - m[i]);
    ASSERT_LE(ulps(got[i], static_cast<double>(want), dtype_of<F>), allowed)
        << "2^(" << s[i] << " - " << m[i] << ") is " << got[i];
  }
}

TEST_P(Exp2, IsCloseToTheTruePower) {
  const double allowed = GetParam().fma ? 2.04 : 2.30;
  expect_powers<float>(GetParam(), allowed);
  expect_powers<double>(GetParam(), allowed);
}

// A row's sums do not depend on when its maximum was found.
template <class F>
void expect_exact_rescaling(const plan::Target& target) {
  const auto [s, m] = scores_and_maxima<F>();
  const std::vector<F> before = exp2_below(target, s, m);
  for (const int more : {1, 7, 20}) {
    std::vector<F> later = m;
    for (F& maximum : later) maximum += static_cast<F>(more);
    const std::vector<F> after = exp2_below(target, s, later);
    for (std::size_t i = 0; i < s.size(); ++i)
      ASSERT_EQ(after[i], std::ldexp(before[i], -more)) << s[i] << " " << m[i] << " " << more;
  }
}

TEST_P(Exp2, ALargerMaximumScalesExactly) {
  expect_exact_rescaling<float>(GetParam());
  expect_exact_rescaling<double>(GetParam());
}

template <class F>
void expect_special(const plan::Target& target) {
  constexpr F infinity = std::numeric_limits<F>::infinity();
  constexpr F lowest = std::numeric_limits<F>::lowest();
  const std::vector<F> s{0, 5, -3, -infinity, -infinity, lowest, -5000, F{-0.0}};
  const std::vector<F> m{0, 5, -3, 0, -3000, 12, 0, 0};
  EXPECT_EQ(exp2_below(target, s, m), (std::vector<F>{1, 1, 1, 0, 0, 0, 0, 1}));
  const F nan = std::numeric_limits<F>::quiet_NaN();
  EXPECT_TRUE(std::isnan(exp2_below<F>(target, {nan}, {3})[0]));
}

TEST_P(Exp2, WholeNumbersNothingAndNaN) {
  expect_special<float>(GetParam());
  expect_special<double>(GetParam());
}

template <class F>
void expect_rounding(const plan::Target& target) {
  std::vector<F> x;
  for (int i = -17; i <= 17; ++i)
    for (const double shift : {0.0, 0.25, 0.5, 0.75}) x.push_back(static_cast<F>(i + shift));
  auto random = rng(4);
  for (int i = 0; i < 5'000; ++i) {
    const auto size = static_cast<int>(random_int(random, -20, 70));
    x.push_back(static_cast<F>(std::ldexp(random_real(random, -1, 1), size)));
  }
  const F largest = std::numeric_limits<F>::max();
  const F limit = std::ldexp(F{1}, std::numeric_limits<F>::digits - 1);
  for (const F edge : {limit, limit - F{0.5}, limit - 1, limit + 1, largest, F{1e-30}})
    for (const F sign : {F{1}, F{-1}}) x.push_back(sign * edge);
  x.push_back(std::numeric_limits<F>::infinity());
  x.push_back(-std::numeric_limits<F>::infinity());
  const auto even = map_vectors<F>(
      target, [](auto& build, auto* a, auto*) { return emit::llvm::round_even(build, a); }, x, x);
  const auto up = map_vectors<F>(
      target, [](auto& build, auto* a, auto*) { return emit::llvm::round_up(build, a); }, x, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(even[i], std::nearbyint(x[i])) << x[i];
    EXPECT_EQ(up[i], std::ceil(x[i])) << x[i];
  }
}

TEST_P(Exp2, RoundsToWholeNumbers) {
  expect_rounding<float>(GetParam());
  expect_rounding<double>(GetParam());
}

}  // namespace
}  // namespace treadle::test
