// Infinities and NaN in gradients: exactly where the definition has them.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/copy.h"
#include "close.h"
#include "fuzz.h"
#include "random_mods.h"
#include "special_values.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::chance;
using test::one_of;
using test::Random;
using test::random_int;

// Shares of infinities and NaN.
struct SpecialShares {
  const char* name;
  double q = 0, k = 0, v = 0, dout = 0, dlse = 0, table = 0;

  friend void PrintTo(const SpecialShares& shares, std::ostream* out) { *out << shares.name; }
};

class SprinkledBackward : public testing::TestWithParam<SpecialShares> {};

INSTANTIATE_TEST_SUITE_P(Cases, SprinkledBackward,
                         testing::Values(SpecialShares{.name = "queries", .q = 0.003},
                                         SpecialShares{.name = "keys", .k = 0.001},
                                         SpecialShares{.name = "values", .v = 0.001},
                                         SpecialShares{.name = "dout", .dout = 0.003},
                                         SpecialShares{.name = "dlse", .dlse = 0.02},
                                         SpecialShares{.name = "table", .table = 0.02},
                                         SpecialShares{"all", 0.001, 0.0003, 0.0003, 0.001, 0.005,
                                                       0.001}),
                         [](const auto& info) { return std::string(info.param.name); });

// Small numbers, some of them special.
void fill_with_specials(Random& random, Tensor& tensor, double share) {
  constexpr std::array values{test::inf, -test::inf, test::nan};
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    const double number = chance(random, share)
                              ? one_of(random, values)
                              : static_cast<double>(random_int(random, -8, 8)) / 8;
    base::store_double(tensor.view().data(), tensor.dtype(), i, number);
  }
}

// Masks that hide most, also everything of some queries and from some keys.
std::vector<MaskMod> hiding_masks() {
  return {{},
          mods::causal(),
          mods::window(20),
          mods::dilated(9),
          parse("(q * 7 + kv * 5 + h) % 11 == 0"),
          parse("kv // 30 == q // 6 && q % 5 != 2")};
}

// The numbers of elements that are special in `expected`.
std::int64_t expect_specials(const Tensor& got, const Tensor& expected, double tolerance,
                             const std::string& what) {
  const test::Array x{ConstView(got)}, y{ConstView(expected)};
  double largest = 1;
  for (const double number : y.data)
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  std::int64_t special = 0;
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    EXPECT_PRED2(test::detail::same_kind, x.data[i], y.data[i]) << what << ", element " << i;
    special += std::isfinite(y.data[i]) ? 0 : 1;
    if (std::isfinite(y.data[i])) {
      EXPECT_NEAR(x.data[i], y.data[i], tolerance * largest) << what << ", element " << i;
    }
    if (testing::Test::HasFailure()) return special;
  }
  return special;
}

TEST_P(SprinkledBackward, LikeTheDefinition) {
  const SpecialShares& shares = GetParam();
  std::int64_t special = 0, elements = 0;
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    constexpr std::array types{DType::f32, DType::f32, DType::f64, DType::bf16, DType::f16};
    const DType type = types[seed % types.size()];
    const std::int64_t queries = random_int(random, 1, 90), keys = random_int(random, 1, 300);
    const DType compute = type == DType::f64 ? DType::f64 : DType::f32;
    Tensor q(type, {1, 2, queries, 5}), k(type, {1, 1, keys, 5}), v(type, {1, 1, keys, 7});
    Tensor dout(type, {1, 2, queries, 7}), dlse(compute, {1, 2, queries});
    const auto table = std::make_shared<Tensor>(DType::f32, Dims{400});
    fill_with_specials(random, q, shares.q);
    fill_with_specials(random, k, shares.k);
    fill_with_specials(random, v, shares.v);
    fill_with_specials(random, dout, shares.dout);
    fill_with_specials(random, dlse, shares.dlse);
    fill_with_specials(random, *table, shares.table);
    Options options;
    options.scale = 0.5;
    options.mask = one_of(random, hiding_masks());
    const bool reads = shares.table > 0 || chance(random, 0.3);
    if (reads) {
      options.score_mod = [t = Capture("table", table)](Score s, Index, Index, Index m, Index n) {
        return s + t(abs(m - n));
      };
      options.gradients = {"table"};
    } else if (chance(random, 0.5)) {
      options.score_mod = parse("8.0 * tanh(score / 8.0)");
    }
    const Inputs inputs{q, k, v};
    const Attention fast = compile(options);
    options.backend = Backend::reference;
    const Attention exact = compile(options);
    const Forward y = fast.forward(inputs, {.lse = true});
    const Saved saved{y.out, y.lse};
    const Backward got = fast.backward(inputs, saved, dout, dlse);
    const Backward expected = exact.backward(inputs, saved, dout, dlse);
    const double tolerance = type == DType::bf16 ? 2e-2 : type == DType::f16 ? 2e-3 : 1e-4;
    special += expect_specials(got.dq, expected.dq, tolerance, "dq");
    special += expect_specials(got.dk, expected.dk, tolerance, "dk");
    special += expect_specials(got.dv, expected.dv, tolerance, "dv");
    if (reads) special += expect_specials(got.of("table"), expected.of("table"), 1e-4, "dtable");
    if (HasFailure()) return;
    elements += got.dq.count() + got.dk.count() + got.dv.count();
    // The exact kernels keep the promise of the others: the same bits for any number of threads.
    const Call serial{.executor = serial_executor()};
    const Backward again = fast.backward(inputs, saved, dout, dlse, serial);
    ASSERT_TRUE(test::same_bits(got.dq, again.dq));
    ASSERT_TRUE(test::same_bits(got.dk, again.dk));
    ASSERT_TRUE(test::same_bits(got.dv, again.dv));
  }
  // Neither nothing nor everything.
  EXPECT_GE(special, test::fuzz_at_least(60));
  EXPECT_LT(special, elements);
}

// All visible scores of a query are -inf: it sees nothing, whatever the values and mods are.
TEST(BackwardOfNothing, TouchesNothing) {
  Tensor q = test::random_tensor(1, DType::f32, {1, 1, 30, 4});
  Tensor k = test::random_tensor(2, DType::f32, {1, 1, 40, 4});
  Tensor v = test::random_tensor(3, DType::f32, {1, 1, 40, 4});
  Tensor dout = test::random_tensor(4, DType::f32, {1, 1, 30, 4});
  for (std::int64_t n = 0; n < 40; ++n) v.at<float>({0, 0, n, 0}) = INFINITY;
  Options options;
  options.score_mod = parse("where(q % 2 == 0, -inf, score)");
  options.mask = parse("q >= kv && q % 2 == 0");
  const Attention attention = compile(options);
  const Forward y = attention.forward({q, k, v}, {.lse = true});
  const Backward g = attention.backward({q, k, v}, {y.out, y.lse}, dout);
  for (const Tensor* t : {&g.dq, &g.dk, &g.dv})
    for (const float x : t->data<float>()) ASSERT_EQ(x, 0);
}

}  // namespace
}  // namespace treadle
