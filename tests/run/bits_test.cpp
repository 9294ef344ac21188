// The promise of equal bits: a row does not depend on threads, neighbours, tiles, orders, or on how
// runs were written down.
#include <gtest/gtest.h>

#include "close.h"
#include "fuzz.h"
#include "placed.h"
#include "plan/schedule.h"
#include "plan/tile_plan.h"
#include "random_mods.h"

namespace treadle {
namespace {

using layout::Order;
using test::ForwardRun;
using test::mods_of;
using test::Random;
using test::random_tensor;
using test::Rows;
using test::same_rows;

struct BitsCase {
  const char* name;
  DType dtype;
  ScoreMod score_mod;
  MaskMod mask;

  friend void PrintTo(const BitsCase& c, std::ostream* out) { *out << c.name; }
};

ScoreMod distance_bias() {
  return [](Score s, Index, Index h, Index q, Index kv) { return s + 0.01 * (h + 1) * (kv - q); };
}

std::vector<BitsCase> cases() {
  const MaskMod scattered = [](Index b, Index h, Index q, Index kv) {
    return (q * 7 + kv * 3 + h + b) % 5 < 3 && q != 11;
  };
  return {{"plain", DType::f32, {}, {}},
          {"causal", DType::f32, {}, mods::causal_lower_right(70, 2600)},
          {"bias_window", DType::f32, distance_bias(), mods::window(900)},
          {"soft_cap", DType::f32, mods::soft_cap(5), scattered},
          {"bf16", DType::bf16, distance_bias(), mods::dilated(3)},
          {"f16", DType::f16, {}, scattered},
          {"f64", DType::f64, mods::soft_cap(5), mods::causal_lower_right(70, 2600)}};
}

// Two batches, grouped heads, three chunks of keys.
class Bits : public testing::TestWithParam<BitsCase> {
 protected:
  const BitsCase& c = GetParam();
  Tensor q = random_tensor(1, c.dtype, {2, 4, 70, 9});
  Tensor k = random_tensor(2, c.dtype, {2, 2, 2600, 9});
  Tensor v = random_tensor(3, c.dtype, {2, 2, 2600, 13});
  ForwardRun run{mods_of(c.score_mod, c.mask)};
  Inputs inputs{q, k, v};
  layout::Extent extent = test::extent_of(inputs);
  double scale = 0.4;
  Rows expected = run(inputs, scale, run.build(extent, {}, 24), *serial_executor());
};

INSTANTIATE_TEST_SUITE_P(Cases, Bits, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Bits, AreThoseOfAttention) {
  const Rows wide = run.reference(inputs, scale, DType::f64);
  const double tolerance = c.dtype == DType::bf16 ? 1e-2 : c.dtype == DType::f16 ? 2e-3 : 1e-5;
  EXPECT_LT(test::largest_difference(expected.out, wide.out), tolerance);
}

TEST_P(Bits, AnyNumberOfThreads) {
  const layout::Layout layout = run.build(extent, {}, 24);
  for (const int threads : {1, 2, 3, 7}) {
    EXPECT_TRUE(same_rows(run(inputs, scale, layout, *tbb_executor(threads)), expected)) << threads;
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      test::ShuffledExecutor shuffled(threads, seed);
      EXPECT_TRUE(same_rows(run(inputs, scale, layout, shuffled), expected)) << threads;
    }
  }
}

TEST_P(Bits, AnyTileHeight) {
  for (const std::int64_t height : {1, 7, 8, 16, 24, 48, 100}) {
    const layout::Layout layout = run.build(extent, {}, height);
    EXPECT_TRUE(same_rows(run(inputs, scale, layout, *tbb_executor(2)), expected)) << height;
  }
}

TEST_P(Bits, AnyQueryOrder) {
  using Kind = Order::Kind;
  for (const Order& order :
       {Order{.kind = Kind::blocks, .modulus = 17}, Order{.kind = Kind::residue, .modulus = 3},
        Order{.kind = Kind::residue, .modulus = 40},
        Order{.kind = Kind::rectangle, .modulus = 8, .rows = 3, .columns = 5}}) {
    const layout::Layout layout = run.build(extent, order, 20);
    EXPECT_TRUE(same_rows(run(inputs, scale, layout, *tbb_executor(2)), expected))
        << to_text(order);
  }
}

TEST_P(Bits, RunsWrittenDownDifferently) {
  const std::uint64_t seed = test::fuzz_seed(5);
  SCOPED_TRACE(test::seed_text(seed));
  Random random = test::rng(seed);
  for (int i = 0; i < 4; ++i) {
    const layout::Layout layout = test::rewritten(run.build(extent, {}, 24), random);
    EXPECT_TRUE(same_rows(run(inputs, scale, layout, *tbb_executor(2)), expected)) << i;
  }
  // One partial run over everything.
  const layout::Tiles tiles({}, extent.queries, 24);
  const std::vector<std::vector<layout::Run>> all(static_cast<std::size_t>(tiles.count()),
                                                  {{0, extent.keys.count(), false}});
  const layout::Layout dense(extent, tiles, false, false, all);
  EXPECT_TRUE(same_rows(run(inputs, scale, dense, *serial_executor()), expected));
}

TEST_P(Bits, AnyMemory) {
  const std::uint64_t seed = test::fuzz_seed(6);
  SCOPED_TRACE(test::seed_text(seed));
  Random random = test::rng(seed);
  for (int i = 0; i < 6; ++i) {
    const auto moved = [&](const Tensor& tensor) {
      test::Placed place =
          test::placed(random, tensor.dtype(), tensor.shape(), {.contiguous = 0.1});
      base::copy(place.view, tensor);
      return place;
    };
    const test::Placed pq = moved(q), pk = moved(k), pv = moved(v);
    const Rows got =
        run({pq.view, pk.view, pv.view}, scale, run.build(extent, {}, 24), *serial_executor());
    EXPECT_TRUE(same_rows(got, expected)) << to_string(pk.view.strides());
  }
}

// A 16-bit float is a float: the sums are those of the same numbers in f32.
TEST_P(Bits, OfSixteenBitsAsOfThirtyTwo) {
  if (c.dtype == DType::f64) return;
  const Tensor q32 = base::convert(q, DType::f32);
  const Tensor k32 = base::convert(k, DType::f32);
  const Tensor v32 = base::convert(v, DType::f32);
  const Rows single = run({q32, k32, v32}, scale, run.build(extent, {}, 24), *serial_executor());
  EXPECT_TRUE(test::same_bits(single.lse, expected.lse));
  EXPECT_TRUE(test::same_bits(single.max, expected.max));
  EXPECT_TRUE(test::same_bits(base::convert(single.out, c.dtype), expected.out));
}

Tensor part(const Tensor& tensor, const Dims& first, const Dims& shape) {
  std::int64_t offset = 0;
  const Dims strides = contiguous_strides(tensor.shape());
  for (std::size_t i = 0; i < first.size(); ++i) offset += first[i] * strides[i];
  const auto* data = static_cast<const std::byte*>(ConstView(tensor).data()) +
                     offset * static_cast<std::int64_t>(size_of(tensor.dtype()));
  return base::convert(ConstView(data, tensor.dtype(), shape, strides), tensor.dtype());
}

TEST(BitsOf, ASequenceAloneAndInABatch) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor q = random_tensor(1, dtype, {3, 2, 37, 6});
    const Tensor k = random_tensor(2, dtype, {3, 2, 1300, 6});
    const Tensor v = random_tensor(3, dtype, {3, 2, 1300, 5});
    const ForwardRun run(mods_of(distance_bias(), mods::causal_lower_right(37, 1300)));
    const Rows all = run({q, k, v}, 0.5);
    for (std::int64_t b = 0; b < 3; ++b) {
      const Tensor qb = part(q, {b}, {1, 2, 37, 6});
      const Tensor kb = part(k, {b}, {1, 2, 1300, 6});
      const Tensor vb = part(v, {b}, {1, 2, 1300, 5});
      EXPECT_TRUE(same_rows(run({qb, kb, vb}, 0.5),
                            {part(all.out, {b}, {1, 2, 37, 5}), part(all.lse, {b}, {1, 2, 37}),
                             part(all.max, {b}, {1, 2, 37})}))
          << b;
    }
  }
}

TEST(BitsOf, AQueryAloneAndAmongOthers) {
  const Tensor q = random_tensor(1, DType::f32, {1, 1, 61, 16});
  const Tensor k = random_tensor(2, DType::f32, {1, 1, 1500, 16});
  const ForwardRun run(mods_of({}, {}));
  const Rows all = run({q, k, k}, 0.25);
  for (const std::int64_t m : {0, 1, 23, 24, 47, 60}) {
    const Tensor alone = part(q, {0, 0, m}, {1, 1, 1, 16});
    EXPECT_TRUE(same_rows(run({alone, k, k}, 0.25), {part(all.out, {0, 0, m}, {1, 1, 1, 16}),
                                                     part(all.lse, {0, 0, m}, {1, 1, 1}),
                                                     part(all.max, {0, 0, m}, {1, 1, 1})}))
        << m;
  }
}

// Whether a key is hidden or not there at all.
TEST(BitsOf, HiddenKeysAndAbsentOnes) {
  const Tensor q = random_tensor(1, DType::f32, {1, 2, 30, 8});
  const Tensor k = random_tensor(2, DType::f32, {1, 2, 3000, 8});
  for (const std::int64_t keys : {1, 5, 1000, 1024, 1025, 2047, 2999}) {
    const Tensor kept = part(k, {0}, {1, 2, keys, 8});
    const ForwardRun hidden(mods_of(distance_bias(), parse(fmt::format("kv < {}", keys))));
    const ForwardRun absent(mods_of(distance_bias(), {}));
    EXPECT_TRUE(same_rows(hidden({q, k, k}, 0.3), absent({q, kept, kept}, 0.3))) << keys;
    // The same when every run is partial and holds the hidden ones too.
    const layout::Tiles tiles({}, 30, 24);
    const layout::Layout dense({1, 2, 30, 3000}, tiles, false, false,
                               {{{0, 3000, false}}, {{0, 3000, false}}});
    EXPECT_TRUE(
        same_rows(hidden({q, k, k}, 0.3, dense, *serial_executor()), absent({q, kept, kept}, 0.3)))
        << keys;
  }
}

// One head and one tile: all the threads can share are chunks.
TEST(BitsOf, TasksThatAreCut) {
  for (const std::int64_t keys : {5000, 70000}) {  // chunks of 1024 and of 2048
    const Tensor q = random_tensor(1, DType::f32, {1, 1, 10, 4});
    const Tensor k = random_tensor(2, DType::f32, {1, 1, keys, 4});
    for (const MaskMod& mask : {MaskMod(), mods::dilated(7), mods::window(keys / 2)}) {
      const ForwardRun run(mods_of({}, mask));
      const layout::Layout layout = run.build({1, 1, 10, keys}, {}, 24);
      const plan::Schedule schedule = plan::schedule(layout, {.threads = 7, .weights = {}});
      ASSERT_EQ(schedule.cuts.size(), 1u);
      EXPECT_GT(schedule.tasks.size(), 2u);
      const Rows expected = run({q, k, k}, 0.5, layout, *serial_executor());
      EXPECT_LT(
          test::largest_difference(expected.out, run.reference({q, k, k}, 0.5, DType::f64).out),
          1e-5);
      for (const int threads : {2, 3, 7}) {
        EXPECT_TRUE(same_rows(run({q, k, k}, 0.5, layout, *tbb_executor(threads)), expected));
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
          test::ShuffledExecutor shuffled(threads, seed);
          EXPECT_TRUE(same_rows(run({q, k, k}, 0.5, layout, shuffled), expected));
        }
      }
    }
  }
}

// Scores that grow with every key: sums are rescaled all the time, and where depends on tiles.
TEST(BitsOf, RisingAndFallingScores) {
  const Tensor q = random_tensor(1, DType::f32, {1, 2, 50, 8});
  const Tensor k = random_tensor(2, DType::f32, {1, 2, 2100, 8});
  for (const double slope : {0.05, 3.0, -0.05, -3.0}) {
    const ForwardRun run(
        mods_of([=](Score s, Index, Index, Index, Index kv) { return 4 * s + slope * kv; },
                mods::window(1700)));
    const layout::Extent extent{1, 2, 50, 2100};
    const Rows expected = run({q, k, k}, 0.3, run.build(extent, {}, 24), *serial_executor());
    EXPECT_LT(test::largest_difference(expected.out, run.reference({q, k, k}, 0.3, DType::f64).out),
              2e-3);
    const std::uint64_t seed = test::fuzz_seed(9);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    for (const std::int64_t height : {5, 16, 30}) {
      const layout::Layout layout = test::rewritten(run.build(extent, {}, height), random);
      test::ShuffledExecutor shuffled(7, 1);
      EXPECT_TRUE(same_rows(run({q, k, k}, 0.3, layout, shuffled), expected)) << slope;
    }
  }
}

}  // namespace
}  // namespace treadle
