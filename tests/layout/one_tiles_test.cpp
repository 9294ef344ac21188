// Layouts of one tile are those that are built one by one, whatever was built before them.
#include "layout/one_tiles.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "fuzz.h"
#include "ir/parse.h"
#include "parsed_mask.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::layout {
namespace {

void expect_same(const Mask& mask, const std::vector<Extent>& extents, OneTiles& made,
                 const base::Workers& workers) {
  made.build(mask.memory, extents, workers);
  ASSERT_EQ(made.size(), extents.size());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    const Tiles tiles({}, extent.queries, 16);
    const Layout alone = build(mask, extent, tiles, workers);
    EXPECT_EQ(made.layout(i, tiles), alone) << to_text(alone);
    const OneTile tile = made[i];
    EXPECT_EQ(tile.has_full, alone.has_full());
    EXPECT_EQ(tile.has_partial, alone.has_partial());
    for (std::int64_t b = 0; b < extent.batch; ++b) {
      for (std::int64_t h = 0; h < extent.heads; ++h) {
        EXPECT_TRUE(std::ranges::equal(tile.runs(b, h), alone.runs(b, h, 0)));
        EXPECT_TRUE(std::ranges::equal(alone.only_tile().runs(b, h), alone.runs(b, h, 0)));
      }
    }
  }
}

TEST(OneTiles, AreThoseBuiltAlone) {
  const auto executor = tbb_executor(2);
  const base::Workers workers(*executor);
  for (int round = 0; round < test::fuzz_count(60); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    test::GraphOptions options = test::mask_options();
    options.operations = static_cast<int>(3 + seed % 10);
    const ir::Graph graph = test::random_graph(random, options);
    OneTiles made(graph);
    for (int step = 0; step < 4; ++step) {
      const test::Captures memory =
          test::random_captures(random, graph, {.shortest = 90, .longest = 120});
      std::vector<Extent> extents(static_cast<std::size_t>(test::random_int(random, 0, 20)));
      for (Extent& extent : extents) {
        const std::int64_t first = test::random_int(random, 0, 70);
        const std::int64_t key = test::random_int(random, 0, 40);
        extent = {test::random_int(random, 1, 2), test::random_int(random, 1, 2),
                  Range(first, first + test::random_int(random, 1, 16)),
                  Range(key, test::random_int(random, key, 90)), test::random_int(random, 0, 3)};
      }
      expect_same({graph, memory.views}, extents, made, workers);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// What captures held in the step before does not show, nor how long they were.
TEST(OneTiles, ReadCapturesAnew) {
  const std::vector<ir::Slot> slots{{"ids", DType::i32, 1}};
  const ir::Graph graph = ir::parse("ids[q] == ids[kv] && kv <= q", slots);
  OneTiles made(graph);
  std::vector<std::int32_t> ids(5000);
  test::Random random = test::rng(1);
  for (const std::int64_t length : {4999, 700, 3000, 40, 5000, 1}) {
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(test::random_int(random, 0, 3));
    std::ranges::sort(ids);
    const Mask mask{graph, {ConstView(ids.data(), {length})}};
    expect_same(mask, {{1, 1, Range(length - 1, length), length}}, made, *serial_executor());
    expect_same(mask, {{1, 1, Range(std::max<std::int64_t>(length - 9, 0), length), length}}, made,
                *serial_executor());
  }
}

TEST(OneTiles, BadInput) {
  const auto executor = serial_executor();
  OneTiles made(mask_of("true").graph);
  const Extent extent{.queries = 1, .keys = 1ll << 31};
  EXPECT_ERROR((made.build({}, {&extent, 1}, *executor)),
               "layout: 2147483648 keys; lengths are between 0 and 2147483647");
  const std::vector<ir::Slot> slots{{"ids", DType::i32, 1}};
  OneTiles captured(ir::parse("ids[q] == 0", slots));
  std::vector<float> floats(4);
  const Extent one{.queries = 1, .keys = 4};
  EXPECT_ERROR((captured.build({ConstView(floats.data(), {4})}, {&one, 1}, *executor)),
               "capture \"ids\" was compiled as i32, the call binds f32");
}

}  // namespace
}  // namespace treadle::layout
