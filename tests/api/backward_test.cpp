// Gradients against central differences of plain loops.
#include <gtest/gtest.h>

#include "element_types.h"
#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::Array;
using test::expect_near;
using test::Plain;
using test::random_tensor;

struct BackwardCase {
  const char* name;
  Dims q, k, v;
  DType q_type, k_type, v_type;
  double tolerance;

  friend void PrintTo(const BackwardCase& c, std::ostream* out) { *out << c.name; }
};

class BackwardShapes : public testing::TestWithParam<BackwardCase> {
 protected:
  const BackwardCase c = GetParam();
  Tensor q = random_tensor(1, c.q_type, c.q);
  Tensor k = random_tensor(2, c.k_type, c.k);
  Tensor v = random_tensor(3, c.v_type, c.v);
  Plain plain{q, k, v};

  void expect_agreement(Options options, std::vector<double>* bias) {
    const Attention attend = compile(options);
    const Forward y = attend.forward({q, k, v}, {.lse = true});
    const Tensor dout = random_tensor(4, y.out.dtype(), y.out.shape());
    const Tensor dlse = random_tensor(5, y.lse.dtype(), y.lse.shape());
    const Backward g = attend.backward({q, k, v}, {y.out, y.lse}, dout, dlse);
    const Array by_out{ConstView(dout)};
    const Array by_lse{ConstView(dlse)};
    expect_near(g.dq, plain.gradient(c.q, plain.q.data, by_out, by_lse), c.tolerance);
    expect_near(g.dk, plain.gradient(c.k, plain.k.data, by_out, by_lse), c.tolerance);
    expect_near(g.dv, plain.gradient(c.v, plain.v.data, by_out, by_lse), c.tolerance);
    EXPECT_EQ(g.dq.dtype(), c.q_type);
    EXPECT_EQ(g.dk.dtype(), c.k_type);
    EXPECT_EQ(g.dv.dtype(), c.v_type);
    if (bias != nullptr) {
      expect_near(g.of("bias"), plain.gradient({3, 2}, *bias, by_out, by_lse), c.tolerance);
    }
  }
};

TEST_P(BackwardShapes, Plain) { expect_agreement({}, nullptr); }

TEST_P(BackwardShapes, ScoreModMaskAndBuffer) {
  std::vector<double> bias{0.5, -0.25, 1, 0.125, -1, 0.75};
  plain.scale = 0.4;
  plain.score = [&](double s, auto, auto h, auto m, auto n) {
    return std::tanh(s) * bias[static_cast<std::size_t>((m + n) % 3 * 2 + h % 2)];
  };
  plain.mask = [](auto, auto, auto m, auto n) { return m >= n - 1; };
  Options options;
  options.scale = 0.4;
  options.score_mod = [table = Capture("bias", View(bias.data(), {3, 2}))](Score s, Index, Index h,
                                                                           Index m, Index n) {
    return tanh(s) * table((m + n) % 3, h % 2);
  };
  options.mask = [](Index, Index, Index m, Index n) { return m >= n - 1; };
  options.gradients = {"bias"};
  expect_agreement(options, &bias);
}

using test::bf16_type, test::f16_type, test::f32, test::f64;

INSTANTIATE_TEST_SUITE_P(
    Cases, BackwardShapes,
    testing::Values(
        BackwardCase{"f64", {2, 2, 3, 4}, {2, 2, 4, 4}, {2, 2, 4, 3}, f64, f64, f64, 1e-8},
        BackwardCase{"f32", {2, 2, 3, 4}, {2, 2, 4, 4}, {2, 2, 4, 3}, f32, f32, f32, 1e-5},
        BackwardCase{
            "grouped_heads", {1, 4, 3, 2}, {1, 2, 4, 2}, {1, 2, 4, 2}, f64, f64, f64, 1e-8},
        BackwardCase{
            "one_key_batch", {3, 2, 2, 2}, {1, 2, 3, 2}, {1, 2, 3, 3}, f64, f64, f64, 1e-8},
        BackwardCase{"one_key", {1, 2, 3, 2}, {1, 2, 1, 2}, {1, 2, 1, 2}, f64, f64, f64, 1e-8},
        // The output that backward is given is rounded to 16 bits, which moves rowsum(O dO).
        BackwardCase{"f32_bf16_f16",
                     {1, 2, 3, 2},
                     {1, 2, 4, 2},
                     {1, 2, 4, 2},
                     f32,
                     bf16_type,
                     f16_type,
                     1e-2},
        BackwardCase{"f16_f64_f16",
                     {1, 2, 3, 2},
                     {1, 2, 4, 2},
                     {1, 2, 4, 2},
                     f16_type,
                     f64,
                     f16_type,
                     2e-3}),
    [](const auto& info) { return std::string(info.param.name); });

class Gradients : public testing::Test {
 protected:
  Tensor x = random_tensor(1, DType::f32, {1, 2, 4, 3});
  Tensor gain = random_tensor(2, DType::f32, {2});
  Tensor pairs = random_tensor(3, DType::f64, {2, 4});
  Options options;

  Gradients() {
    options.score_mod = [gain = Capture("gain", gain), pairs = Capture("pairs", pairs)](
                            Score s, Index, Index h, Index m, Index n) {
      return s * gain(h) + pairs(h, m) * pairs(h, n);
    };
  }

  Backward gradients_of(const std::vector<std::string>& names) {
    options.gradients = names;
    const Attention attend = compile(options);
    const Forward y = attend.forward({x, x, x}, {.lse = true});
    return attend.backward({x, x, x}, {y.out, y.lse}, x);
  }
};

TEST_F(Gradients, AreFoundByName) {
  const Backward both = gradients_of({"pairs", "gain"});
  ASSERT_EQ(both.captures.size(), 2u);
  EXPECT_EQ(both.captures[0].name, "pairs");
  EXPECT_EQ(both.captures[1].name, "gain");
  EXPECT_EQ(both.of("gain").shape(), (Dims{2}));
  EXPECT_EQ(both.of("gain").dtype(), DType::f32);
  EXPECT_EQ(both.of("pairs").shape(), (Dims{2, 4}));
  EXPECT_EQ(both.of("pairs").dtype(), DType::f64);
}

TEST_F(Gradients, DoNotDependOnWhichOthersAreAskedFor) {
  const Backward both = gradients_of({"pairs", "gain"});
  const Backward one = gradients_of({"gain"});
  const Backward none = gradients_of({});
  EXPECT_TRUE(test::same_bits(one.of("gain"), both.of("gain")));
  EXPECT_TRUE(test::same_bits(none.dq, both.dq));
  EXPECT_TRUE(test::same_bits(none.dk, one.dk));
  EXPECT_TRUE(none.captures.empty());
}

TEST_F(Gradients, TwiceTheSame) {
  const Backward first = gradients_of({"gain", "pairs"});
  const Backward second = gradients_of({"gain", "pairs"});
  EXPECT_TRUE(test::same_bits(first.dq, second.dq));
  EXPECT_TRUE(test::same_bits(first.dk, second.dk));
  EXPECT_TRUE(test::same_bits(first.dv, second.dv));
  EXPECT_TRUE(test::same_bits(first.of("gain"), second.of("gain")));
  EXPECT_TRUE(test::same_bits(first.of("pairs"), second.of("pairs")));
}

TEST_F(Gradients, NoDlseIsOneOfZeros) {
  const Attention attend = compile(options);
  const Forward y = attend.forward({x, x, x}, {.lse = true});
  const Tensor zeros(DType::f32, y.lse.shape());
  const Backward without = attend.backward({x, x, x}, {y.out, y.lse}, x);
  const Backward with = attend.backward({x, x, x}, {y.out, y.lse}, x, zeros);
  EXPECT_TRUE(test::same_bits(without.dq, with.dq));
}

// The score mod reads `gain`, but no score depends on it: its gradient is zero, not a mistake.
TEST_F(Gradients, OfACaptureThatSimplificationDrops) {
  options.score_mod = [gain = Capture("gain", gain)](Score s, Index, Index h, Index m, Index n) {
    return where(m == m + 0 * n && false, s * gain(h), s);
  };
  const Backward g = gradients_of({"gain"});
  EXPECT_EQ(g.of("gain").shape(), (Dims{2}));
  for (const float d : g.of("gain").data<float>()) EXPECT_EQ(d, 0);
}

}  // namespace
}  // namespace treadle
