// The reference backward pass is the derivative of the reference forward pass.
#include "finite_difference.h"

#include <gtest/gtest.h>

namespace treadle {
namespace {

using test::Case;
using test::expect_gradients_match;
using test::random_case;
using test::random_f64;

class FiniteDifference : public testing::Test {
 protected:
  std::mt19937_64 random = test::rng(11);
  Case c = random_case(random, {.heads = 4});
};

TEST_F(FiniteDifference, Identity) { expect_gradients_match(c, {}); }

TEST_F(FiniteDifference, TimesTwo) {
  c.options.score_mod = [](auto s, auto, auto, auto, auto) { return s * 2; };
  expect_gradients_match(c, {});
}

TEST_F(FiniteDifference, Square) {
  c.options.score_mod = [](auto s, auto, auto, auto, auto) { return s * s; };
  expect_gradients_match(c, {});
}

TEST_F(FiniteDifference, Alibi) {
  Tensor slopes = random_f64(random, {4});
  c.options.score_mod = mods::alibi({"slopes", slopes});
  c.options.mask = mods::causal();
  c.options.gradients = {"slopes"};
  expect_gradients_match(c, {{"slopes", &slopes}});
}

TEST_F(FiniteDifference, RelativeBiasTable) {
  Tensor table = random_f64(random, {4, 7});
  c.options.score_mod = mods::relative_bias({"table", table}, 3);
  c.options.gradients = {"table"};
  expect_gradients_match(c, {{"table", &table}});
}

TEST_F(FiniteDifference, SoftCap) {
  c.options.score_mod = mods::soft_cap(0.7);
  c.options.scale = 1.5;
  expect_gradients_match(c, {});
}

TEST_F(FiniteDifference, PerHeadGate) {
  Tensor gate = random_f64(random, {4});
  const Capture captured("gate", gate);
  c.options.score_mod = [=](Score s, Index, Index h, Index, Index) {
    return s * sigmoid(captured(h));
  };
  c.options.gradients = {"gate"};
  expect_gradients_match(c, {{"gate", &gate}});
}

TEST_F(FiniteDifference, Causal) {
  c.options.mask = mods::causal();
  expect_gradients_match(c, {});
}

TEST_F(FiniteDifference, Window) {
  c.options.mask = mods::causal() & mods::window(2);
  expect_gradients_match(c, {});
}

TEST_F(FiniteDifference, Document) {
  const std::vector<std::int64_t> ids{0, 0, 1, 1, 1, 2};
  c.options.mask = mods::document(Capture("ids", ConstView(ids.data(), {6})));
  expect_gradients_match(c, {});
}

TEST_F(FiniteDifference, EmptyRows) {
  c.options.mask = [](Index, Index, Index q, Index kv) { return q > 1 && kv < q; };
  expect_gradients_match(c, {});
}

TEST_F(FiniteDifference, ScalarUsedEverywhereAndBiasUsedTwice) {
  Tensor scalar = random_f64(random, {});
  Tensor bias = random_f64(random, {6, 6});
  const Capture s0("s0", scalar);
  const Capture both("both", bias);
  c.options.score_mod = [=](Score s, Index, Index, Index q, Index kv) {
    return s * s0 + both(q, kv) * both(kv, q);
  };
  c.options.gradients = {"both", "s0"};
  expect_gradients_match(c, {{"s0", &scalar}, {"both", &bias}});
}

TEST_F(FiniteDifference, ChainedIndices) {
  Tensor table = random_f64(random, {3});
  const std::vector<std::int32_t> bucket{2, 0, 1, 0, 2, 1};
  const Capture buckets("buckets", ConstView(bucket.data(), {6}));
  const Capture values("values", table);
  c.options.score_mod = [=](Score s, Index, Index, Index, Index kv) {
    return s + values(buckets(kv));
  };
  c.options.gradients = {"values"};
  expect_gradients_match(c, {{"values", &table}});
}

TEST(FiniteDifferenceShapes, GroupedHeadsBroadcastKeysAndUnequalDims) {
  for (const test::CaseSizes& sizes : {test::CaseSizes{.heads = 4, .key_heads = 2},
                                       test::CaseSizes{.key_batch = 1, .value_dim = 5},
                                       test::CaseSizes{.heads = 6, .key_batch = 1, .key_heads = 2},
                                       test::CaseSizes{.queries = 1, .keys = 1},
                                       test::CaseSizes{.queries = 0}, test::CaseSizes{.keys = 0}}) {
    std::mt19937_64 random = test::rng(5);
    Case c = random_case(random, sizes);
    Tensor gate = random_f64(random, {sizes.heads});
    const Capture captured("gate", gate);
    c.options.score_mod = [=](Score s, Index, Index h, Index q, Index kv) {
      return s * captured(h) + 0.1 * (q - kv);
    };
    c.options.mask = mods::causal() | mods::dilated(2);
    c.options.gradients = {"gate"};
    expect_gradients_match(c, {{"gate", &gate}});
  }
}

// Mods and masks drawn from a list, shapes at random.
TEST(FiniteDifferenceShapes, RandomCombinations) {
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    test::CaseSizes sizes;
    sizes.key_heads = test::random_int(random, 1, 2);
    sizes.heads = sizes.key_heads * test::random_int(random, 1, 2);
    sizes.batch = test::random_int(random, 1, 2);
    sizes.key_batch = test::random_int(random, 0, 1) == 0 ? 1 : sizes.batch;
    sizes.queries = test::random_int(random, 1, 5);
    sizes.keys = test::random_int(random, 1, 5);
    sizes.dim = test::random_int(random, 1, 3);
    sizes.value_dim = test::random_int(random, 1, 3);
    Case c = random_case(random, sizes);
    Tensor table = random_f64(random, {16});
    const Capture t("t", table);
    const std::vector<ScoreMod> score_mods{
        [=](Score s, Index, Index, Index q, Index kv) { return tanh(s) * t(q + kv); },
        [=](Score s, Index b, Index h, Index, Index) { return s + exp(t(b) - t(h)); },
        [=](Score s, Index, Index, Index q, Index kv) {
          return where(q > kv, s * t(kv), t(q) - s);
        },
        [=](Score s, Index, Index, Index q, Index kv) { return s / (1.5 + sin(t(abs(q - kv)))); },
        [=](Score s, Index, Index, Index q, Index) { return sqrt(1 + s * s) + log1p(t(q) * t(q)); },
    };
    const std::vector<MaskMod> masks{MaskMod(), mods::causal(), mods::window(2), !mods::causal(),
                                     mods::dilated(2)};
    c.options.score_mod = score_mods[seed % score_mods.size()];
    c.options.mask = masks[seed / 2 % masks.size()];
    c.options.gradients = {"t"};
    expect_gradients_match(c, {{"t", &table}});
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace treadle
