// Forward results against plain loops, for shapes, types and mods of many kinds.
#include <gtest/gtest.h>

#include "element_types.h"
#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::expect_near;
using test::Plain;
using test::random_tensor;

struct ForwardCase {
  const char* name;
  Dims q, k, v;
  DType q_type, k_type, v_type;
  double tolerance;

  friend void PrintTo(const ForwardCase& c, std::ostream* out) { *out << c.name; }
};

class ForwardShapes : public testing::TestWithParam<ForwardCase> {
 protected:
  const ForwardCase c = GetParam();
  Tensor q = random_tensor(1, c.q_type, c.q);
  Tensor k = random_tensor(2, c.k_type, c.k);
  Tensor v = random_tensor(3, c.v_type, c.v);
  Plain plain{q, k, v};

  void expect_agreement(Options options) const {
    const Forward y = attention({q, k, v}, options, {.lse = true, .max = true});
    const Plain::Result expected = plain.run();
    expect_near(y.out, expected.out, c.tolerance);
    // Rows are kept in the type of the sums, so their errors are those of f32 at most.
    expect_near(y.lse, expected.lse, 2e-5);
    expect_near(y.max, expected.max, 2e-5);
    EXPECT_EQ(y.out.dtype(), c.q_type);
    const bool wide = c.q_type == DType::f64 || c.k_type == DType::f64 || c.v_type == DType::f64;
    EXPECT_EQ(y.lse.dtype(), wide ? DType::f64 : DType::f32);
    EXPECT_EQ(y.max.dtype(), y.lse.dtype());
  }
};

TEST_P(ForwardShapes, Plain) { expect_agreement({}); }

TEST_P(ForwardShapes, Causal) {
  plain.mask = [](auto, auto, auto m, auto n) { return m >= n; };
  Options options;
  options.mask = mods::causal();
  expect_agreement(options);
}

// Everything at once: every index, a captured buffer, a mask with empty rows, a scale.
TEST_P(ForwardShapes, ScoreModMaskAndScale) {
  const Tensor slopes = random_tensor(4, DType::f32, {c.q[1]});
  plain.scale = 0.3;
  plain.score = [&](double s, auto b, auto h, auto m, auto n) {
    return 3 * std::tanh(s / 3) +
           static_cast<double>(slopes.at<float>({h})) * static_cast<double>(n - m) +
           static_cast<double>(b);
  };
  plain.mask = [](auto b, auto, auto m, auto n) { return (m + n + b) % 3 != 0 && m != 1; };
  Options options;
  options.scale = 0.3;
  options.score_mod = [&](Score s, Index b, Index h, Index m, Index n) {
    return 3 * tanh(s / 3) + slopes(h) * (n - m) + b;
  };
  options.mask = [](Index b, Index, Index m, Index n) { return (m + n + b) % 3 != 0 && m != 1; };
  expect_agreement(options);
}

using test::bf16_type, test::f16_type, test::f32, test::f64;

INSTANTIATE_TEST_SUITE_P(
    Cases, ForwardShapes,
    testing::Values(
        ForwardCase{"square", {2, 2, 5, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, f32, f32, f32, 1e-5},
        ForwardCase{"f64", {2, 2, 5, 4}, {2, 2, 7, 4}, {2, 2, 7, 4}, f64, f64, f64, 1e-13},
        ForwardCase{"grouped_heads", {1, 6, 3, 8}, {1, 2, 9, 8}, {1, 2, 9, 8}, f32, f32, f32, 1e-5},
        ForwardCase{"multi_query", {2, 4, 3, 8}, {2, 1, 9, 8}, {2, 1, 9, 8}, f32, f32, f32, 1e-5},
        ForwardCase{"value_dim", {1, 2, 3, 4}, {1, 2, 6, 4}, {1, 2, 6, 11}, f32, f32, f32, 1e-5},
        ForwardCase{"value_dim_1", {1, 2, 3, 4}, {1, 2, 6, 4}, {1, 2, 6, 1}, f32, f32, f32, 1e-5},
        ForwardCase{"dim_1", {1, 2, 3, 1}, {1, 2, 6, 1}, {1, 2, 6, 5}, f32, f32, f32, 1e-5},
        ForwardCase{"one_key_batch", {3, 2, 4, 4}, {1, 2, 5, 4}, {1, 2, 5, 3}, f32, f32, f32, 1e-5},
        ForwardCase{
            "one_query", {2, 3, 1, 16}, {2, 3, 40, 16}, {2, 3, 40, 16}, f32, f32, f32, 1e-5},
        ForwardCase{"one_key", {2, 3, 6, 4}, {2, 3, 1, 4}, {2, 3, 1, 4}, f32, f32, f32, 1e-5},
        ForwardCase{"bf16",
                    {1, 2, 5, 8},
                    {1, 2, 7, 8},
                    {1, 2, 7, 8},
                    bf16_type,
                    bf16_type,
                    bf16_type,
                    5e-3},
        ForwardCase{
            "f16", {1, 2, 5, 8}, {1, 2, 7, 8}, {1, 2, 7, 8}, f16_type, f16_type, f16_type, 6e-4},
        ForwardCase{"f32_bf16_f16",
                    {1, 2, 5, 8},
                    {1, 2, 7, 8},
                    {1, 2, 7, 8},
                    f32,
                    bf16_type,
                    f16_type,
                    1e-5},
        ForwardCase{
            "f16_f64_f16", {1, 2, 5, 8}, {1, 2, 7, 8}, {1, 2, 7, 8}, f16_type, f64, f16_type, 6e-4},
        ForwardCase{
            "f64_f32_bf16", {1, 2, 5, 8}, {1, 2, 7, 8}, {1, 2, 7, 8}, f64, f32, bf16_type, 1e-13}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Forward, RowsOnlyWhenAskedFor) {
  const Tensor x = random_tensor(1, DType::f32, {1, 1, 3, 2});
  const Forward neither = attention({x, x, x});
  EXPECT_EQ(neither.lse.count(), 0);
  EXPECT_EQ(neither.max.count(), 0);
  const Forward max = attention({x, x, x}, {}, {.max = true});
  EXPECT_EQ(max.lse.count(), 0);
  EXPECT_EQ(max.max.shape(), (Dims{1, 1, 3}));
  EXPECT_EQ(attention({x, x, x}, {}, {.lse = true}).lse.shape(), (Dims{1, 1, 3}));
}

TEST(Forward, DefaultScaleIsThatOfTheDim) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, 3, 7});
  Options options;
  options.scale = 1 / std::sqrt(7.0);
  EXPECT_TRUE(test::same_bits(attention({x, x, x}).out, attention({x, x, x}, options).out));
}

TEST(Forward, ScaleZeroIsTheMean) {
  const Tensor x = random_tensor(1, DType::f64, {1, 1, 4, 3});
  Options options;
  options.scale = 0;
  const Tensor out = attention({x, x, x}, options).out;
  double mean = 0;
  for (std::int64_t n = 0; n < 4; ++n) mean += x.at<double>({0, 0, n, 1}) / 4;
  EXPECT_NEAR(out.at<double>({0, 0, 2, 1}), mean, 1e-15);
}

TEST(Forward, OneCallIsCompileAndForward) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, 6, 4});
  Options options;
  options.mask = mods::causal();
  const Attention compiled = compile(options);
  EXPECT_TRUE(test::same_bits(attention({x, x, x}, options).out, compiled.forward({x, x, x}).out));
  const Attention copy = compiled;
  EXPECT_TRUE(test::same_bits(copy.forward({x, x, x}).out, compiled.forward({x, x, x}).out));
}

}  // namespace
}  // namespace treadle
