// Lengths of zero, rows that see nothing, infinities and NaN.
#include <gtest/gtest.h>

#include <limits>

#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::random_tensor;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

bool all(const Tensor& tensor, const std::function<bool(float)>& holds) {
  return std::ranges::all_of(tensor.data<float>(), holds);
}
bool is_zero(float x) { return x == 0; }
bool is_minus_infinity(float x) { return x == -infinity; }
bool is_nan(float x) { return std::isnan(x); }

TEST(Empty, NoQueries) {
  const Tensor q(DType::f32, {2, 4, 0, 3});
  const Tensor k = random_tensor(1, DType::f32, {2, 2, 5, 3});
  const Attention plain = compile({});
  const Forward y = plain.forward({q, k, k}, {.lse = true, .max = true});
  EXPECT_EQ(y.out.shape(), (Dims{2, 4, 0, 3}));
  EXPECT_EQ(y.lse.shape(), (Dims{2, 4, 0}));
  const Backward g = plain.backward({q, k, k}, {y.out, y.lse}, y.out);
  EXPECT_EQ(g.dq.shape(), q.shape());
  EXPECT_TRUE(all(g.dk, is_zero) && all(g.dv, is_zero));
}

TEST(Empty, NoKeys) {
  const Tensor q = random_tensor(1, DType::f32, {2, 4, 5, 3});
  const Tensor k(DType::f32, {2, 2, 0, 3});
  const Tensor v(DType::f32, {2, 2, 0, 6});
  const Attention plain = compile({});
  const Forward y = plain.forward({q, k, v}, {.lse = true, .max = true});
  EXPECT_EQ(y.out.shape(), (Dims{2, 4, 5, 6}));
  EXPECT_TRUE(all(y.out, is_zero));
  EXPECT_TRUE(all(y.lse, is_minus_infinity) && all(y.max, is_minus_infinity));
  const Backward g = plain.backward({q, k, v}, {y.out, y.lse}, y.out);
  EXPECT_TRUE(all(g.dq, is_zero));
  EXPECT_EQ(g.dk.shape(), k.shape());
  EXPECT_EQ(g.dv.shape(), v.shape());
}

TEST(Empty, NoBatchOrNoHeads) {
  const Attention plain = compile({});
  for (const Dims& shape : {Dims{0, 2, 5, 3}, Dims{2, 0, 5, 3}, Dims{0, 0, 0, 3}}) {
    const Tensor x(DType::f32, shape);
    const Forward y = plain.forward({x, x, x}, {.lse = true, .max = true});
    EXPECT_EQ(y.out.shape(), shape);
    EXPECT_EQ(plain.backward({x, x, x}, {y.out, y.lse}, y.out).dk.shape(), shape);
  }
}

TEST(Empty, NoBatchOfQueriesOverOneOfKeys) {
  const Tensor q(DType::f32, {0, 2, 5, 3});
  const Tensor k = random_tensor(1, DType::f32, {1, 2, 4, 3});
  const Attention plain = compile({});
  const Forward y = plain.forward({q, k, k}, {.lse = true, .max = true});
  const Backward g = plain.backward({q, k, k}, {y.out, y.lse}, y.out);
  EXPECT_TRUE(all(g.dk, is_zero) && all(g.dv, is_zero));
}

TEST(Empty, NoHeadsOfQueriesOverSomeOfKeys) {
  const Tensor q(DType::f32, {1, 0, 5, 3});
  const Tensor k = random_tensor(1, DType::f32, {1, 2, 4, 3});
  const Attention plain = compile({});
  const Forward y = plain.forward({q, k, k}, {.lse = true, .max = true});
  EXPECT_TRUE(all(plain.backward({q, k, k}, {y.out, y.lse}, y.out).dv, is_zero));
}

// NaN and infinity in what nobody sees touch nothing.
TEST(Empty, ARowThatSeesNothing) {
  const Tensor q = random_tensor(1, DType::f32, {1, 1, 3, 2});
  Tensor k = random_tensor(2, DType::f32, {1, 1, 4, 2});
  Tensor v = random_tensor(3, DType::f32, {1, 1, 4, 2});
  k.at<float>({0, 0, 3, 0}) = nan;
  v.at<float>({0, 0, 3, 1}) = infinity;
  Options options;
  options.mask = [](Index, Index, Index m, Index n) { return m != 1 && n < 3; };
  const Attention some = compile(options);
  const Forward y = some.forward({q, k, v}, {.lse = true, .max = true});
  EXPECT_EQ(y.out.at<float>({0, 0, 1, 0}), 0);
  EXPECT_EQ(y.lse.at<float>({0, 0, 1}), -infinity);
  EXPECT_EQ(y.max.at<float>({0, 0, 1}), -infinity);
  EXPECT_TRUE(all(y.out, [](float x) { return std::isfinite(x); }));
  const Tensor dout = random_tensor(4, DType::f32, y.out.shape());
  const Backward g = some.backward({q, k, v}, {y.out, y.lse}, dout);
  EXPECT_EQ(g.dq.at<float>({0, 0, 1, 0}), 0);
  EXPECT_EQ(g.dk.at<float>({0, 0, 3, 0}), 0);
  EXPECT_EQ(g.dv.at<float>({0, 0, 3, 0}), 0);
  EXPECT_TRUE(all(g.dq, [](float x) { return std::isfinite(x); }));
}

TEST(Special, ANanScoreMakesItsRowNan) {
  const Tensor x = random_tensor(1, DType::f32, {1, 1, 3, 2});
  Options options;
  options.score_mod = [](Score s, Index, Index, Index m, Index n) {
    return where(m == 1 && n == 0, std::numeric_limits<double>::quiet_NaN(), s);
  };
  const Forward y = attention({x, x, x}, options, {.lse = true, .max = true});
  for (std::int64_t m = 0; m < 3; ++m) {
    EXPECT_EQ(std::isnan(y.out.at<float>({0, 0, m, 0})), m == 1);
    EXPECT_EQ(std::isnan(y.lse.at<float>({0, 0, m})), m == 1);
    EXPECT_EQ(std::isnan(y.max.at<float>({0, 0, m})), m == 1);
  }
}

TEST(Special, AHiddenNanScoreDoesNotCount) {
  const Tensor x = random_tensor(1, DType::f32, {1, 1, 3, 2});
  Options options;
  options.score_mod = [](Score s, Index, Index, Index m, Index n) { return s + log(m - n); };
  options.mask = [](Index, Index, Index m, Index n) { return m > n; };
  const Forward y = attention({x, x, x}, options, {.lse = true, .max = true});
  EXPECT_TRUE(all(y.out, [](float f) { return std::isfinite(f); }));
}

TEST(Special, AScoreOfMinusInfinityIsSeenAndWeighsNothing) {
  const Tensor x = random_tensor(1, DType::f32, {1, 1, 3, 2});
  Options masked;
  masked.mask = mods::causal();
  Options scored;
  scored.score_mod = [](Score s, Index, Index, Index m, Index n) {
    return where(m >= n, s, -infinity);
  };
  const Forward a = attention({x, x, x}, masked, {.lse = true, .max = true});
  const Forward b = attention({x, x, x}, scored, {.lse = true, .max = true});
  EXPECT_LT(test::largest_difference(a.out, b.out), 1e-6);
  EXPECT_LT(test::largest_difference(a.lse, b.lse), 1e-6);
}

TEST(Special, OnlyScoresOfMinusInfinityAreAsNoneAtAll) {
  const Tensor x = random_tensor(1, DType::f32, {1, 1, 3, 2});
  Options options;
  options.score_mod = [](Score, Index, Index, Index, Index) { return -infinity; };
  const Attention nothing = compile(options);
  const Forward y = nothing.forward({x, x, x}, {.lse = true, .max = true});
  EXPECT_TRUE(all(y.out, is_zero));
  EXPECT_TRUE(all(y.lse, is_minus_infinity) && all(y.max, is_minus_infinity));
  const Backward g = nothing.backward({x, x, x}, {y.out, y.lse}, x);
  EXPECT_TRUE(all(g.dq, is_zero) && all(g.dk, is_zero) && all(g.dv, is_zero));
}

TEST(Special, AScoreOfInfinity) {
  const Tensor x = random_tensor(1, DType::f32, {1, 1, 3, 2});
  Options options;
  options.score_mod = [](Score s, Index, Index, Index m, Index n) {
    return where(m == n, infinity, s);
  };
  const Forward y = attention({x, x, x}, options, {.lse = true, .max = true});
  EXPECT_TRUE(all(y.max, [](float f) { return f == infinity; }));
  EXPECT_TRUE(all(y.lse, [](float f) { return f == infinity; }));
  EXPECT_TRUE(all(y.out, is_nan));
}

TEST(Special, ANanQueryTouchesItsOwnRow) {
  Tensor q = random_tensor(1, DType::f32, {1, 1, 3, 2});
  const Tensor k = random_tensor(2, DType::f32, {1, 1, 3, 2});
  q.at<float>({0, 0, 2, 0}) = nan;
  const Tensor out = attention({q, k, k}).out;
  EXPECT_TRUE(std::isfinite(out.at<float>({0, 0, 1, 0})));
  EXPECT_TRUE(std::isnan(out.at<float>({0, 0, 2, 0})));
}

TEST(Special, LargeScoresDoNotOverflow) {
  Tensor q(DType::f32, {1, 1, 1, 1});
  Tensor k(DType::f32, {1, 1, 2, 1});
  q.at<float>({0, 0, 0, 0}) = 1e18f;
  k.at<float>({0, 0, 0, 0}) = 1e18f;
  k.at<float>({0, 0, 1, 0}) = -1e18f;
  const Forward y = attention({q, k, k}, {}, {.lse = true, .max = true});
  EXPECT_EQ(y.out.at<float>({0, 0, 0, 0}), 1e18f);
  EXPECT_FLOAT_EQ(y.lse.at<float>({0, 0, 0}), 1e36f);
}

}  // namespace
}  // namespace treadle
