// Infinities and NaN: exactly where the definition has them, whatever lies beside them in a tile, a
// block or a chunk.
#include <gtest/gtest.h>

#include "close.h"
#include "fuzz.h"
#include "placed.h"
#include "printers.h"
#include "random_mods.h"
#include "special_values.h"

namespace treadle {
namespace {

using test::chance;
using test::ForwardRun;
using test::mods_of;
using test::one_of;
using test::Random;
using test::random_int;
using test::random_tensor;
using test::Rows;

using test::inf;
using test::nan;

void sprinkle(Random& random, const View& view, double share) {
  constexpr std::array values{inf, -inf, nan};
  test::for_each_element(view, [&](std::int64_t at) {
    if (chance(random, share))
      base::store_double(view.data(), view.dtype(), at, one_of(random, values));
  });
}

struct Kind {
  const char* name;
  double q, k, v;  // shares of infinities and NaN

  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
};

class Sprinkled : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Cases, Sprinkled,
                         testing::Values(Kind{"queries", 0.003, 0, 0}, Kind{"keys", 0, 0.0005, 0},
                                         Kind{"values", 0, 0, 0.001},
                                         Kind{"all", 0.002, 0.0003, 0.0005}),
                         [](const auto& info) { return std::string(info.param.name); });

// Masks that hide most, so that most rows see nothing special.
std::vector<MaskMod> special_masks() {
  return {{},
          mods::causal_lower_right(60, 1200),
          mods::window(20),
          mods::dilated(9),
          parse("(q * 7 + kv * 5 + h) % 11 == 0"),
          parse("kv // 100 == q // 6 && q % 5 != 2")};
}

TEST_P(Sprinkled, LikeTheDefinition) {
  for (int round = 0; round < test::fuzz_count(24); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    constexpr std::array types{DType::f32, DType::f32, DType::f64, DType::bf16, DType::f16};
    const DType type = types[seed % 5];
    const std::int64_t queries = chance(random, 0.5) ? 60 : random_int(random, 1, 60);
    const std::int64_t keys = chance(random, 0.5) ? 1200 : random_int(random, 1, 200);
    Tensor q(type, {1, 2, queries, 5}), k(type, {1, 1, keys, 5}), v(type, {1, 1, keys, 7});
    test::fill_eighths(random, q);
    test::fill_eighths(random, k);
    test::fill_reals(random, v);
    sprinkle(random, q, GetParam().q);
    sprinkle(random, k, GetParam().k);
    sprinkle(random, v, GetParam().v);
    const ScoreMod bias = parse("score + float(kv - q) / 128.0");
    const ScoreMod capped = parse("where(score > 100.0, score, 8.0 * tanh(score / 8.0))");
    const ForwardRun run(mods_of(seed % 3 == 0   ? ScoreMod()
                                 : seed % 3 == 1 ? bias
                                                 : capped,
                                 special_masks()[seed % special_masks().size()]));
    const Inputs inputs{q, k, v};
    const layout::Extent extent = test::extent_of(inputs);
    const Rows got = run(inputs, 0.5, run.build(extent, {}, 24), *serial_executor());
    const double tolerance = type == DType::bf16 ? 1e-2 : type == DType::f16 ? 1e-3 : 2e-5;
    expect_alike(got, run.reference(inputs, 0.5), tolerance);
    if (HasFatalFailure()) return;
    for (int i = 0; i < 2; ++i) {
      layout::Layout layout = run.build(extent, {}, random_int(random, 1, 50));
      layout = test::rewritten(layout, random);
      test::ShuffledExecutor shuffled(7, random());
      ASSERT_TRUE(same_rows(run(inputs, 0.5, layout, shuffled), got));
    }
  }
}

// Graphs that make infinities and NaN of their own.
TEST(SpecialMods, LikeTheDefinition) {
  int special_rounds = 0;
  for (int round = 0; round < test::fuzz_count(200); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed + 10'000);
    const test::Mods mods = test::random_mods(random, {.special_constants = true});
    const ForwardRun run(mods);
    const DType type = chance(random, 0.5) ? DType::f32 : DType::f64;
    Tensor q(type, {2, 2, 40, 6}), k(type, {2, 1, 130, 6}), v(type, {2, 1, 130, 6});
    test::fill_eighths(random, q);
    test::fill_eighths(random, k);
    test::fill_reals(random, v);
    const Inputs inputs{q, k, v};
    const Rows got = run(inputs, 0.25);
    test::Compared compared;
    expect_close(got, run.reference(inputs, 0.25, DType::f32),
                 run.reference(inputs, 0.25, DType::f64), compared);
    if (testing::Test::HasFatalFailure()) return;
    special_rounds += compared.special > 0 ? 1 : 0;
  }
  EXPECT_GE(special_rounds, test::fuzz_at_least(5));  // on average every fourth
}

// A row of its own for each of the few things that may happen.
class OneSpecial : public testing::TestWithParam<DType> {
 protected:
  // Keys 0 .. 2100 in three chunks; q sees kv if kv % 50 == q, or kv < 2.
  ForwardRun run{mods_of({}, parse("kv % 50 == q || kv < 2"))};
  Tensor q = random_tensor(1, GetParam(), {1, 1, 50, 4});
  Tensor k = random_tensor(2, GetParam(), {1, 1, 2100, 4});
  Tensor v = random_tensor(3, GetParam(), {1, 1, 2100, 3});
  Rows clean = run({q, k, v}, 0.5);

  static void put(Tensor& tensor, const Dims& index, double value) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < 4; ++i) at = at * tensor.shape()[i] + index[i];
    base::store_double(tensor.view().data(), tensor.dtype(), at, value);
  }
  static double get(const Tensor& tensor, std::int64_t at) {
    return base::load_double(ConstView(tensor).data(), tensor.dtype(), at);
  }
  // Every row but this one has the bits it had.
  void expect_only(std::int64_t row, const Rows& got) const {
    for (std::int64_t m = 0; m < 50; ++m) {
      if (m == row) continue;
      EXPECT_EQ(get(got.lse, m), get(clean.lse, m)) << m;
      EXPECT_EQ(get(got.max, m), get(clean.max, m)) << m;
      for (std::int64_t d = 0; d < 3; ++d)
        EXPECT_EQ(get(got.out, m * 3 + d), get(clean.out, m * 3 + d)) << m;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Types, OneSpecial,
                         testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(OneSpecial, Query) {
  for (const double x : {nan, inf, -inf}) {
    Tensor spoilt = q.clone();
    put(spoilt, {0, 0, 31, 2}, x);
    const Rows got = run({spoilt, k, v}, 0.5);
    expect_only(31, got);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(get(got.lse, 31)));
      EXPECT_TRUE(std::isnan(get(got.max, 31)));
    }
    for (std::int64_t d = 0; d < 3; ++d) EXPECT_TRUE(std::isnan(get(got.out, 31 * 3 + d)));
  }
}

TEST_P(OneSpecial, Key) {
  for (const std::int64_t key : {17, 1017, 2067}) {  // all seen by query 17 alone
    Tensor spoilt = k.clone();
    put(spoilt, {0, 0, key, 0}, nan);
    const Rows got = run({q, spoilt, v}, 0.5);
    expect_only(17, got);
    EXPECT_TRUE(std::isnan(get(got.lse, 17)));
    EXPECT_TRUE(std::isnan(get(got.max, 17)));
    for (std::int64_t d = 0; d < 3; ++d) EXPECT_TRUE(std::isnan(get(got.out, 17 * 3 + d)));
  }
}

TEST_P(OneSpecial, Value) {
  for (const double x : {nan, inf, -inf}) {
    for (const std::int64_t key : {17, 1017, 2067}) {
      Tensor spoilt = v.clone();
      put(spoilt, {0, 0, key, 1}, x);
      const Rows got = run({q, k, spoilt}, 0.5);
      expect_only(17, got);
      EXPECT_EQ(get(got.lse, 17), get(clean.lse, 17));
      EXPECT_EQ(get(got.max, 17), get(clean.max, 17));
      EXPECT_EQ(get(got.out, 17 * 3), get(clean.out, 17 * 3));
      EXPECT_EQ(get(got.out, 17 * 3 + 2), get(clean.out, 17 * 3 + 2));
      const double seen = get(got.out, 17 * 3 + 1);
      EXPECT_TRUE(std::isnan(x) ? std::isnan(seen) : seen == x) << seen;
    }
  }
}

// Whatever its bits are: the ones that kernels mark hidden scores with, too.
TEST_P(OneSpecial, NanOfAnyPayload) {
  if (GetParam() == DType::bf16 || GetParam() == DType::f16) return;
  for (const std::uint64_t bits : {0x7ff8000000000000u, 0xfff8000000000000u, 0xfff8deadbeefdeadu,
                                   0xffffffffffffffffu, 0x7ff8000000000001u}) {
    Tensor spoilt_q = q.clone(), spoilt_k = k.clone();
    if (GetParam() == DType::f64) {
      spoilt_q.at<double>({0, 0, 31, 2}) = std::bit_cast<double>(bits);
      spoilt_k.at<double>({0, 0, 1031, 2}) = std::bit_cast<double>(bits);
    } else {
      const std::uint32_t narrow = bits == 0xfff8deadbeefdeadu
                                       ? 0xffc0deadu
                                       : static_cast<std::uint32_t>(bits >> 32) | 0x400000u;
      spoilt_q.at<float>({0, 0, 31, 2}) = std::bit_cast<float>(narrow);
      spoilt_k.at<float>({0, 0, 1031, 2}) = std::bit_cast<float>(narrow);
    }
    for (const Inputs& inputs : {Inputs{spoilt_q, k, v}, Inputs{q, spoilt_k, v}}) {
      const Rows got = run(inputs, 0.5);
      expect_only(31, got);
      EXPECT_TRUE(std::isnan(get(got.lse, 31))) << std::hex << bits;
      EXPECT_TRUE(std::isnan(get(got.max, 31))) << std::hex << bits;
      EXPECT_TRUE(std::isnan(get(got.out, 31 * 3))) << std::hex << bits;
    }
  }
}

// In a column that is hidden from everybody, and in one that no run holds.
TEST_P(OneSpecial, HiddenFromAll) {
  const ForwardRun half(mods_of({}, parse("kv % 50 == q && kv % 3 == 0")));
  const Rows before = half({q, k, v}, 0.5);
  Tensor bad_k = k.clone(), bad_v = v.clone();
  for (std::int64_t key = 1; key < 2100; key += 3) {
    put(bad_k, {0, 0, key, 1}, nan);
    put(bad_v, {0, 0, key, 2}, inf);
    put(bad_v, {0, 0, key, 0}, nan);
  }
  EXPECT_TRUE(same_rows(half({q, bad_k, bad_v}, 0.5), before));
  const layout::Tiles tiles({}, 50, 24);
  const std::vector<layout::Run> all{{0, 2100, false}};
  const layout::Layout dense({1, 1, 50, 2100}, tiles, false, false, {all, all, all});
  EXPECT_TRUE(same_rows(half({q, bad_k, bad_v}, 0.5, dense, *serial_executor()), before));
  test::ShuffledExecutor shuffled(7, 3);
  EXPECT_TRUE(same_rows(half({q, bad_k, bad_v}, 0.5, dense, shuffled), before));
}

// Rows that see nothing lie between others, whose values are spoilt.
TEST(SpecialRows, ThatSeeNothing) {
  Tensor q = random_tensor(1, DType::f32, {1, 1, 40, 4});
  Tensor k = random_tensor(2, DType::f32, {1, 1, 1100, 4});
  Tensor v(DType::f32, {1, 1, 1100, 3});
  for (float& x : v.data<float>()) x = std::numeric_limits<float>::quiet_NaN();
  for (float& x : k.data<float>()) x = std::numeric_limits<float>::infinity();
  const ForwardRun run(mods_of({}, parse("q % 3 == 0 && kv > 5")));
  const Rows got = run({q, k, v}, 0.5);
  for (std::int64_t m = 0; m < 40; ++m) {
    if (m % 3 == 0) continue;
    EXPECT_EQ(got.lse.at<float>({0, 0, m}), -inf);
    EXPECT_EQ(got.max.at<float>({0, 0, m}), -inf);
    for (std::int64_t d = 0; d < 3; ++d) {
      EXPECT_EQ(got.out.at<float>({0, 0, m, d}), 0);
      EXPECT_FALSE(std::signbit(got.out.at<float>({0, 0, m, d})));
    }
  }
}

// Scores of -inf and +inf from a mod, in some chunks or in all of them.
TEST(SpecialScores, OfInfiniteSize) {
  Random random = test::rng(1);
  Tensor q(DType::f32, {1, 1, 30, 4}), k(DType::f32, {1, 1, 2500, 4}),
      v(DType::f32, {1, 1, 2500, 5});
  test::fill_eighths(random, q);
  test::fill_eighths(random, k);
  test::fill_reals(random, v);
  v.at<float>({0, 0, 3, 0}) = std::numeric_limits<float>::infinity();
  v.at<float>({0, 0, 1500, 1}) = std::numeric_limits<float>::quiet_NaN();
  for (const char* text : {"where(kv < 1024, -inf, score)", "where(kv >= 1024, -inf, score)",
                           "where(kv % 7 == q % 7, score, -inf)", "where(q % 2 == 0, -inf, score)",
                           "where(kv == 1030 && q == 7, inf, score)", "where(kv == q, inf, -inf)",
                           "where(kv == 2000 + q, nan, where(kv == q, inf, score))",
                           "where(kv == q, nan, where(kv == 2000 + q, inf, score))", "-inf",
                           "score + where(q > 3, -inf, 0.0)"}) {
    SCOPED_TRACE(text);
    for (const MaskMod& mask : {MaskMod(), MaskMod(parse("(q + kv) % 5 != 1 && kv != 3"))}) {
      const ForwardRun run(mods_of(parse(text), mask));
      const Rows got = run({q, k, v}, 0.25);
      expect_alike(got, run.reference({q, k, v}, 0.25), 2e-5);
      test::ShuffledExecutor shuffled(7, 3);
      const layout::Layout layout = test::rewritten(run.build({1, 1, 30, 2500}, {}, 24), random);
      EXPECT_TRUE(same_rows(run({q, k, v}, 0.25, layout, shuffled), got));
    }
  }
}

// Far larger and far smaller than powers of two a float has.
TEST(SpecialScores, OfHugeSize) {
  Random random = test::rng(1);
  for (const DType type : {DType::f32, DType::f64}) {
    Tensor q(type, {1, 1, 30, 4}), k(type, {1, 1, 1500, 4}), v(type, {1, 1, 1500, 5});
    test::fill_eighths(random, q);
    test::fill_eighths(random, k);
    test::fill_reals(random, v);
    for (const char* text :
         {"score * 1000.0", "score + 1e4", "score - 1e4", "score * 1e30", "1e30 * float(kv % 3)",
          "where(kv < 1030, 1e35, score)", "where(kv < 1030, -1e35, score)", "-1e37 + score * 1e36",
          "where(kv % 2 == 0, -1e4, 0.0)"}) {
      SCOPED_TRACE(text);
      const ForwardRun run(mods_of(parse(text), parse("q + 1400 >= kv")));
      const Rows got = run({q, k, v}, 0.25);
      // The last bit of a score of 1e4 is worth a thousandth.
      expect_alike(got, run.reference({q, k, v}, 0.25), type == DType::f32 ? 1e-3 : 1e-9);
    }
  }
}

}  // namespace
}  // namespace treadle
