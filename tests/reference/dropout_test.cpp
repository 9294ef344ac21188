// Dropout of the definition: against loops that share nothing with it, and gradients against central
// differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "finite_difference.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

constexpr Dropout some{.probability = 0.3, .seed = 7, .offset = 1};

Attention reference(Options options = {}) {
  options.backend = Backend::reference;
  return compile(options);
}

TEST(ReferenceDropout, LikeThePlainLoops) {
  const Tensor q = test::random_tensor(1, DType::f64, {2, 4, 9, 8});
  const Tensor k = test::random_tensor(2, DType::f64, {2, 2, 21, 8});
  const Tensor v = test::random_tensor(3, DType::f64, {2, 2, 21, 5});
  test::Plain plain(q, k, v);
  plain.dropout = some;
  plain.mask = [](auto, auto, auto m, auto n) { return n <= 2 * m; };
  const test::Plain::Result expected = plain.run();
  Options options;
  options.mask = parse("kv <= 2 * q");
  const Forward got =
      reference(options).forward({q, k, v}, {.lse = true, .max = true, .dropout = some});
  test::expect_near(got.out, expected.out, 1e-12);
  test::expect_near(got.lse, expected.lse, 1e-12);
  test::expect_near(got.max, expected.max, 1e-12);
}

TEST(ReferenceDropout, GradientsAreThoseOfTheKeptWeights) {
  std::mt19937_64 random = test::rng(17);
  for (const double p : {0.1, 0.5, 1.0}) {
    test::Case c = test::random_case(random, {.heads = 4, .keys = 9});
    Tensor table = test::random_f64(random, {16});
    const Capture t("t", table);
    c.options.backend = Backend::reference;
    c.options.score_mod = [=](Score s, Index, Index, Index m, Index n) { return s * t(m + n); };
    c.options.mask = mods::window(4);
    c.options.gradients = {"t"};
    c.dropout = {.probability = p, .seed = 5};
    test::expect_gradients_match(c, {{"t", &table}});
  }
}

// A dropped weight is zero, as if it were multiplied with 0: zero times infinity is no number.
TEST(ReferenceDropout, DroppedInfinitiesAreNaN) {
  const Tensor q = test::random_tensor(1, DType::f64, {1, 1, 8, 4});
  const Tensor k = test::random_tensor(2, DType::f64, {1, 1, 8, 4});
  Tensor v = test::random_tensor(3, DType::f64, {1, 1, 8, 1});
  v.at<double>({0, 0, 5, 0}) = std::numeric_limits<double>::infinity();
  const Forward got = reference().forward({q, k, v}, {.dropout = some});
  for (std::int64_t m = 0; m < 8; ++m) {
    const double out = got.out.at<double>({0, 0, m, 0});
    EXPECT_EQ(std::isnan(out), !keeps(some, 0, 0, m, 5)) << m;
    EXPECT_FALSE(std::isfinite(out)) << m;
  }
}

}  // namespace
}  // namespace treadle
