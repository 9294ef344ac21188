// Layouts are exact, whatever the mask, the tiles and the number of threads.
#include "layout/build.h"

#include <gtest/gtest.h>

#include <numeric>

#include "exact_layout.h"
#include "expect_error.h"
#include "fuzz.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "parsed_mask.h"
#include "passes/simplify.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::layout {
namespace {

std::vector<Order> orders() {
  return {{},
          {.kind = Order::Kind::blocks, .modulus = 20},
          {.kind = Order::Kind::residue, .modulus = 7},
          {.kind = Order::Kind::residue, .modulus = 300},
          {.kind = Order::Kind::rectangle, .modulus = 16, .rows = 3, .columns = 5}};
}

// Half of them from position 0 on.
Range random_range(test::Random& random) {
  const std::int64_t begin = std::max<std::int64_t>(0, test::random_int(random, -40, 40));
  return {begin, test::random_int(random, begin, 90)};
}

TEST(Tiles, HoldEveryQueryOnce) {
  for (const Order& order : orders()) {
    for (const Range queries :
         {Range(0), Range(1), Range(15), Range(16), Range(100), Range(257), Range(3, 4),
          Range(5, 14), Range(17, 300), Range(16, 32), Range(40, 40)}) {
      const Tiles tiles(order, queries, 16);
      std::vector<int> seen(static_cast<std::size_t>(queries.count()));
      for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
        ASSERT_GE(tiles.size(tile), 1);
        ASSERT_LE(tiles.size(tile), 16);
        for (std::int64_t i = 0; i < tiles.size(tile); ++i)
          ++seen.at(static_cast<std::size_t>(tiles.query(tile, i) - queries.begin));
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1))
          << to_text(order) << ", " << queries.begin << " up to " << queries.end;
    }
  }
}

TEST(Build, KnownMasksAreExactInEveryOrder) {
  const auto executor = tbb_executor(2);
  for (const char* text :
       {"true", "false", "q >= kv", "q >= kv && q - kv < 30", "(q - kv) % 7 == 0 && q >= kv",
        "q // 20 == kv // 20", "abs(q % 16 - kv % 16) <= 2 && abs(q // 16 - kv // 16) <= 1",
        "q * kv % 5 == 0", "q ^ kv < 9", "kv % 32 >= 28 || q // 32 == kv // 32",
        "b * 10 + q >= kv + h", "float(q) * 0.5 < float(kv)", "q + 40 >= kv"}) {
    const Mask mask = mask_of(text);
    for (const Order& order : orders()) {
      for (const Extent extent :
           {Extent{2, 2, 100, 150}, Extent{1, 1, 257, 33}, Extent{1, 2, 1, 90},
            Extent{1, 2, Range(70, 133), Range(35, 120)}, Extent{1, 1, Range(90, 91), 91}}) {
        const Tiles tiles(order, extent.queries, 16);
        expect_exact(mask, extent, tiles, build(mask, extent, tiles, *executor));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Build, RandomMasksAreExact) {
  const auto executor = tbb_executor(2);
  for (int round = 0; round < test::fuzz_count(2000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    test::GraphOptions options = test::mask_options();
    options.special_constants = seed % 3 == 0;
    options.operations = static_cast<int>(3 + seed % 10);
    const ir::Graph graph = test::random_graph(random, options);
    const test::Captures memory =
        test::random_captures(random, graph, {.shortest = seed % 2 == 0 ? 1 : 90, .longest = 100});
    const Mask mask{graph, memory.views};
    const Extent extent{test::random_int(random, 1, 2), test::random_int(random, 1, 2),
                        random_range(random), random_range(random)};
    const Tiles tiles(orders()[seed % 5], extent.queries, 15 + test::random_int(random, 0, 40));
    expect_exact(mask, extent, tiles, build(mask, extent, tiles, *executor));
    if (HasFatalFailure()) return;
  }
}

TEST(Build, IsTheSameForAnyNumberOfThreads) {
  const Mask mask = mask_of("(q - kv) % 9 == 0 || abs(q - kv) < 5 + h");
  const Extent extent{.batch = 3, .heads = 4, .queries = 900, .keys = 700};
  const Tiles tiles({}, extent.queries, 48);
  const Layout alone = build(mask, extent, tiles, *serial_executor());
  for (const int threads : {2, 3, 7})
    EXPECT_EQ(build(mask, extent, tiles, *tbb_executor(threads)), alone);
  EXPECT_FALSE(alone.per_batch());
  EXPECT_TRUE(alone.per_head());
}

TEST(Build, TailsCanBeFull) {
  const Extent extent{.queries = 50, .keys = 70};
  const Layout layout = build(mask_of("true"), extent, Tiles({}, 50, 48), *serial_executor());
  EXPECT_EQ(to_text(layout),
            "50 x 70 pairs, 2 tiles of up to 48 queries (identity), 2 runs, 124 bytes\n"
            "tile 0, 48 queries from 0 in steps of 1: [0, 70) full\n"
            "tile 1, 2 queries from 48 in steps of 1: [0, 70) full\n");
}

TEST(Build, DocumentIdsOfEveryType) {
  const auto executor = tbb_executor(2);
  const std::int64_t length = 500;
  for (const DType dtype :
       {DType::i64, DType::i32, DType::i16, DType::u8, DType::f32, DType::f64}) {
    Tensor ids(dtype, {length});
    for (std::int64_t i = 0; i < length; ++i)
      base::store_int(ids.view().data(), dtype, i, i * i / 9000);
    const std::vector<ir::Slot> slots{{"ids", dtype, 1}};
    const Mask mask{ir::parse("ids[q] == ids[kv] && q >= kv", slots), {ids}};
    const Extent extent{.queries = length, .keys = length};
    const Tiles tiles({}, length, 48);
    expect_exact(mask, extent, tiles, build(mask, extent, tiles, *executor));
  }
}

TEST(Build, DenseArraysOfAnyStride) {
  test::Random random = test::rng(1);
  Tensor array(DType::boolean, {2, 3, 70, 90});
  for (bool& x : array.data<bool>()) x = test::chance(random, 0.03);
  const std::vector<ir::Slot> slots{{"m", DType::boolean, 4}};
  const Mask mask{ir::parse("m[b, h, q, kv]", slots), {array}};
  const Extent extent{2, 3, 70, 90};
  for (const Order& order : orders()) {
    const Tiles tiles(order, 70, 16);
    expect_exact(mask, extent, tiles, build(mask, extent, tiles, *tbb_executor(2)));
  }
  // Transposed, and one head for all.
  const ConstView view(array.view().data(), DType::boolean, {90, 70}, {1, 90});
  const std::vector<ir::Slot> two{{"m", DType::boolean, 2}};
  const Mask transposed{ir::parse("m[q, kv]", two), {view}};
  const Extent swapped{2, 3, 90, 70};
  const Tiles tiles({}, 90, 16);
  expect_exact(transposed, swapped, tiles, build(transposed, swapped, tiles, *tbb_executor(2)));
}

TEST(Build, BadInput) {
  const auto executor = serial_executor();
  EXPECT_ERROR((Tiles({}, -1, 48)), "layout: -1 queries; lengths are between 0 and 2147483647");
  EXPECT_ERROR((Tiles({}, 10, 0)), "layout: tiles of height 0; the height must be at least 1");
  EXPECT_ERROR(
      (build(mask_of("true"), {.queries = 1, .keys = 1ll << 31}, Tiles({}, 1, 1), *executor)),
      "layout: 2147483648 keys; lengths are between 0 and 2147483647");
  EXPECT_ERROR(
      (build(mask_of("score > 0.0"), {.queries = 1, .keys = 1}, Tiles({}, 1, 1), *executor)),
      "layout: the mask mentions the score; which pairs are visible must not depend on it");
  EXPECT_ERROR((build(mask_of("q + kv"), {.queries = 1, .keys = 1}, Tiles({}, 1, 1), *executor)),
               "layout: the mask returns int; a mask returns one bool");
  EXPECT_ERROR((build(mask_of("q < kv, q > kv, true"), {.queries = 1, .keys = 1}, Tiles({}, 1, 1),
                      *executor)),
               "layout: the mask returns several values; a mask returns one bool");
  EXPECT_ERROR((build(mask_of("true"), {.queries = 5, .keys = 1}, Tiles({}, 4, 1), *executor)),
               "layout: tiles for queries 0 up to 4, the extent has 0 up to 5");
  const Extent extent{.queries = 64, .keys = 64};
  const Selection selection(extent, 32, 1, 1, {{{16, 32, false}}, {}});
  EXPECT_ERROR((build(mask_of("true"), selection, Tiles({}, 64, 48), *executor)),
               "layout: tile 0 crosses a border of the selection's blocks of 32 queries");
  std::vector<float> floats(4);
  const std::vector<ir::Slot> slots{{"ids", DType::i32, 1}};
  const Mask changed{ir::parse("ids[q] == 0", slots), {ConstView(floats.data(), {4})}};
  EXPECT_ERROR((build(changed, {.queries = 4, .keys = 1}, Tiles({}, 4, 4), *executor)),
               "capture \"ids\" was compiled as i32, the call binds f32");
  const Mask unbound{changed.graph, {}};
  EXPECT_ERROR((build(unbound, {.queries = 4, .keys = 1}, Tiles({}, 4, 4), *executor)),
               "layout: 0 captures are bound, the mask has 1");
}

}  // namespace
}  // namespace treadle::layout
