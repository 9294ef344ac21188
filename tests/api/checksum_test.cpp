// Results bit for bit as they were: a change of the code that is not meant to change numbers
// changes no checksum here.
//
// For one target, so that every machine that runs it has the same bits, and for mods without
// functions of the C library, whose versions differ. A change of sums that is meant replaces the
// numbers below, in a commit that says why: a failing test prints the new ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/copy.h"
#include "base/hash.h"
#include "plan/target.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

constexpr const char* target = "haswell";

// Numbers in -1 .. 1 that every machine makes alike, exact in every float type but bf16.
Tensor numbers(std::uint64_t seed, DType dtype, const Dims& shape) {
  Tensor exact(DType::f64, shape);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (double& x : exact.data<double>()) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    x = (static_cast<double>(state >> 53) - 1024) / 1024;
  }
  return base::convert(exact, dtype);
}

Tensor integers(const Dims& shape, std::int64_t divisor) {
  Tensor tensor(DType::i32, shape);
  std::int32_t i = 0;
  for (std::int32_t& x : tensor.data<std::int32_t>()) x = static_cast<std::int32_t>(i++ / divisor);
  return tensor;
}

struct ChecksumCase {
  std::string name;
  DType dtype = DType::f32;
  Dims q, k;  // shapes
  std::int64_t value_dim = 0;
  Options options;
  std::string checksum;
};

void PrintTo(const ChecksumCase& c, std::ostream* stream) { *stream << c.name; }

Options with(const ScoreMod& score_mod, const MaskMod& mask,
             const std::vector<std::string>& gradients = {}) {
  Options options;
  options.score_mod = score_mod;
  options.mask = mask;
  options.gradients = gradients;
  return options;
}

// For captures that keep their memory alive.
std::shared_ptr<const Tensor> kept(Tensor tensor) {
  return std::make_shared<const Tensor>(std::move(tensor));
}

std::vector<ChecksumCase> cases() {
  const Capture slopes("slopes", kept(numbers(11, DType::f32, {4})));
  const Capture table("table", kept(numbers(12, DType::f32, {801})));
  const Capture bias("bias", kept(numbers(13, DType::f32, {4, 130, 150})));
  const Capture documents("documents", kept(integers({400}, 37)));
  const ScoreMod alibi = [=](Score s, Index, Index h, Index q, Index kv) {
    return s + slopes(h) * (kv - q);
  };
  const ScoreMod relative = [=](Score s, Index, Index, Index q, Index kv) {
    return s + table(q - kv + 400);
  };
  const ScoreMod biased = [=](Score s, Index, Index h, Index q, Index kv) {
    return s + bias(h, q, kv);
  };
  const ScoreMod rational = [](Score s, Index, Index h, Index, Index) {
    return s * (h + 1) / (1.0 + 0.25 * s * s);
  };
  const MaskMod scattered = [](Index b, Index h, Index q, Index kv) {
    return (q * 7 + kv * 3 + h + b) % 5 < 3 && q != 11;
  };
  const MaskMod strided = [](Index, Index, Index q, Index kv) {
    return q >= kv && (q - kv) % 32 == 0;
  };
  return {
      {"causal",
       DType::f32,
       {1, 4, 300, 64},
       {1, 2, 300, 64},
       64,
       with({}, mods::causal()),
       "5ad6a060c53318c31e6f09c06cd55680"},
      {"three_chunks",
       DType::f32,
       {2, 2, 70, 40},
       {2, 1, 2600, 40},
       24,
       with({}, {}),
       "bdd1022f0176e67b88d559391e1d57fd"},
      {"bf16_window",
       DType::bf16,
       {1, 4, 260, 32},
       {1, 4, 260, 32},
       32,
       with({}, mods::window(50)),
       "7701993c93b805737fcb2895ebe96c69"},
      {"f16_alibi",
       DType::f16,
       {2, 4, 130, 16},
       {1, 4, 140, 16},
       8,
       with(alibi, mods::causal(), {"slopes"}),
       "427b27dae52c041285daca817fb5ebff"},
      {"f64",
       DType::f64,
       {1, 2, 90, 20},
       {1, 2, 1100, 20},
       12,
       with(rational, scattered),
       "0c97583cd975dc85a13f740d0a46ef61"},
      {"relative_table",
       DType::f32,
       {1, 4, 200, 32},
       {1, 4, 200, 32},
       32,
       with(relative, mods::causal(), {"table"}),
       "8bbb7e4fd33c47e74f6f0099c0328d26"},
      {"bias_of_pairs",
       DType::f32,
       {2, 4, 130, 24},
       {2, 4, 150, 24},
       24,
       with(biased, {}, {"bias"}),
       "0b07c457043ef01d5656d24009124b5e"},
      {"general_score",
       DType::f32,
       {1, 4, 150, 48},
       {1, 2, 170, 48},
       48,
       with(rational, mods::window(90)),
       "05cfe9a8076cbb97373c63f8571d764e"},
      {"documents",
       DType::f32,
       {1, 2, 400, 64},
       {1, 2, 400, 64},
       64,
       with({}, mods::causal() & mods::document(documents)),
       "8e30fe68ad62369a63f7f8e05b223a92"},
      {"strided",
       DType::f32,
       {1, 2, 512, 64},
       {1, 2, 512, 64},
       64,
       with({}, strided),
       "4d0f483525e40fac6c91fb62a1a33572"},
      {"scattered",
       DType::f32,
       {2, 4, 100, 17},
       {2, 4, 1300, 17},
       9,
       with({}, scattered),
       "d3474285a3dbcf5212bf4786a4d98dee"},
  };
}

class Checksum : public testing::TestWithParam<ChecksumCase> {};

INSTANTIATE_TEST_SUITE_P(Cases, Checksum, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Checksum, IsWhatItWas) {
  const std::vector<std::string> runnable = plan::runnable_targets();
  if (std::ranges::find(runnable, target) == runnable.end()) GTEST_SKIP() << "needs " << target;
  const ChecksumCase& c = GetParam();
  const Tensor q = numbers(1, c.dtype, c.q);
  const Tensor k = numbers(2, c.dtype, c.k);
  Dims value_shape = c.k;
  value_shape.back() = c.value_dim;
  const Tensor v = numbers(3, c.dtype, value_shape);
  Dims out_shape = c.q;
  out_shape.back() = c.value_dim;
  const Tensor dout = numbers(4, c.dtype, out_shape);
  const Tensor dlse =
      numbers(5, c.dtype == DType::f64 ? DType::f64 : DType::f32, {c.q[0], c.q[1], c.q[2]});
  Options options = c.options;
  options.target = target;

  const Attention attention = compile(options);
  const Forward y = attention.forward({q, k, v}, {.lse = true, .max = true});
  const Backward g = attention.backward({q, k, v}, {y.out, y.lse}, dout, dlse);
  base::Hasher hasher;
  const auto add = [&](const Tensor& tensor) {
    const auto* bytes = static_cast<const char*>(tensor.view().data());
    hasher.add(std::string_view(
        bytes, static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype())));
  };
  for (const Tensor* tensor : {&y.out, &y.lse, &y.max, &g.dq, &g.dk, &g.dv}) add(*tensor);
  for (const CaptureGradient& gradient : g.captures) add(gradient.gradient);
  EXPECT_EQ(to_string(hasher.finish()), c.checksum);
}

}  // namespace
}  // namespace treadle
