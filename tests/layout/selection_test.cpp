// Lists of keys and of blocks as selections, and layouts of what they leave. What is refused is in
// tests/error/key_lists_error_test.cpp.
#include "layout/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "brute_layout.h"
#include "fuzz.h"
#include "ir/print.h"
#include "layout/build.h"
#include "parsed_mask.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::layout {
namespace {

using Runs = std::vector<Run>;

Runs row(const Selection& selection, std::int64_t b, std::int64_t h, std::int64_t block) {
  const auto runs = selection.runs(b, h, block);
  return {runs.begin(), runs.end()};
}

Runs runs_of(const Layout& layout, std::int64_t b, std::int64_t h, std::int64_t tile) {
  const auto runs = layout.runs(b, h, tile);
  return {runs.begin(), runs.end()};
}

Selection selected(const KeyLists& lists, const Extent& extent, std::int64_t key_heads = 1) {
  return select_keys(lists, extent, key_heads, *serial_executor());
}

// --- lists of keys ------------------------------------------------------------------------------

TEST(SelectKeys, InAnyOrderNeighboursJoined) {
  const std::vector<std::int64_t> tokens{9, 2, 3, 4, 0, 5, 7, 6};
  const Selection selection =
      selected({16, 1, ConstView(tokens.data(), {1, 1, 2, 4})}, {.queries = 20, .keys = 10});
  EXPECT_EQ(row(selection, 0, 0, 0), (Runs{{2, 5, false}, {9, 10, false}}));
  EXPECT_EQ(row(selection, 0, 0, 1), (Runs{{0, 1, false}, {5, 8, false}}));
}

TEST(SelectKeys, BlocksOfKeysAreCutAtTheEnd) {
  const std::vector<std::int32_t> blocks{2, 0};
  const Selection selection =
      selected({4, 16, ConstView(blocks.data(), {1, 1, 1, 2})}, {.queries = 3, .keys = 40});
  EXPECT_EQ(row(selection, 0, 0, 0), (Runs{{0, 16, false}, {32, 40, false}}));
}

TEST(SelectKeys, CountsMakeListsOfDifferentLengths) {
  const std::vector<std::int32_t> tokens{3, -1, -1, 8, 1, -1};
  const std::vector<std::int64_t> counts{1, 2};
  const Selection selection =
      selected({4, 1, ConstView(tokens.data(), {1, 2, 1, 3}), ConstView(counts.data(), {1, 2, 1})},
               {.batch = 3, .heads = 2, .queries = 4, .keys = 10}, 2);
  EXPECT_FALSE(selection.per_batch());
  EXPECT_TRUE(selection.per_head());
  EXPECT_EQ(row(selection, 2, 0, 0), (Runs{{3, 4, false}}));
  EXPECT_EQ(row(selection, 0, 1, 0), Runs{layout::Run::stepped({1, 1, 7, 2}, false)});
}

// Two key heads, each with a list for its three heads; counts per head.
TEST(SelectKeys, OneListForEachKeyHead) {
  const std::vector<std::int32_t> tokens{5, 6, 2, 3};
  const std::vector<std::int32_t> counts{2, 1, 0, 0, 1, 2};
  const ConstView lists(tokens.data(), {1, 2, 1, 2});
  const Extent extent{.heads = 6, .queries = 8, .keys = 9};
  const Selection shared = selected({8, 1, lists}, extent, 2);
  const Selection counted = selected({8, 1, lists, ConstView(counts.data(), {1, 6, 1})}, extent, 2);
  for (std::int64_t h = 0; h < 6; ++h) {
    const std::int64_t first = h < 3 ? 5 : 2;
    EXPECT_EQ(row(shared, 0, h, 0), (Runs{{first, first + 2, false}})) << h;
    const std::int64_t count = counts[static_cast<std::size_t>(h)];
    EXPECT_EQ(row(counted, 0, h, 0), count == 0 ? Runs() : (Runs{{first, first + count, false}}))
        << h;
  }
}

TEST(SelectKeys, NoQueriesNoKeysNoBatch) {
  const std::vector<std::int32_t> none{};
  for (const Extent& extent :
       {Extent{.queries = 0, .keys = 5}, Extent{.batch = 0, .queries = 0, .keys = 5},
        Extent{.heads = 0, .queries = 0, .keys = 0}}) {
    const ConstView lists(none.data(), DType::i32, {extent.batch, extent.heads, 0, 3});
    const Selection selection = selected({4, 1, lists}, extent, extent.heads);
    const Layout layout =
        build(mask_of("true"), selection, tiles_for(selection, {}), *serial_executor());
    EXPECT_EQ(layout.run_pairs(), 0);
  }
}

// --- FlexAttention's block lists ----------------------------------------------------------------

// Two rows of up to three blocks of 16 keys, over 32 queries and 40 keys.
struct Given {
  std::vector<std::int64_t> counts{2, 1}, indices{2, 0, -7, 1, 99, 99};
  std::vector<std::int32_t> full_counts{1, 0}, full_indices{1, 99, 99, 99, 99, 99};
  Extent extent{.batch = 1, .heads = 1, .queries = 32, .keys = 40};

  [[nodiscard]] BlockListViews views() const {
    return {.query_block = 16,
            .key_block = 16,
            .kv_num_blocks = ConstView(counts.data(), {1, 1, 2}),
            .kv_indices = ConstView(indices.data(), {1, 1, 2, 3}),
            .full_kv_num_blocks = ConstView(full_counts.data(), {1, 1, 2}),
            .full_kv_indices = ConstView(full_indices.data(), {1, 1, 2, 3})};
  }
  [[nodiscard]] Selection selection() const {
    return select_blocks(views(), extent, 1, *serial_executor());
  }
};

TEST(SelectBlocks, AnyOrderAndAnythingBehindTheCount) {
  const Selection selection = Given().selection();
  EXPECT_EQ(row(selection, 0, 0, 0), (Runs{{0, 16, false}, {16, 32, true}, {32, 40, false}}));
  EXPECT_EQ(row(selection, 0, 0, 1), (Runs{{16, 32, false}}));
  EXPECT_FALSE(selection.per_batch());
  EXPECT_FALSE(selection.per_head());
}

TEST(SelectBlocks, FullOnesSkipTheMask) {
  const Tiles tiles({.kind = Order::Kind::blocks, .modulus = 16}, 32, 16);
  const Layout layout = build(mask_of("kv == 3"), Given().selection(), tiles, *serial_executor());
  EXPECT_EQ(runs_of(layout, 0, 0, 0), (Runs{{3, 4, true}, {16, 32, true}}));
  EXPECT_EQ(runs_of(layout, 0, 0, 1), Runs());
}

TEST(SelectBlocks, FullListsMayBeMissing) {
  const Given given;
  BlockListViews views = given.views();
  views.full_kv_num_blocks.reset();
  views.full_kv_indices.reset();
  EXPECT_EQ(row(select_blocks(views, given.extent, 1, *serial_executor()), 0, 0, 0),
            (Runs{{0, 16, false}, {32, 40, false}}));
}

TEST(SelectBlocks, BatchesAndHeadsOfTheirOwnInAnyStrides) {
  // Counts per head, indices per batch that run backwards, full lists for all.
  const std::vector<std::int32_t> counts{1, 0, 2, 1};
  const std::vector<std::int64_t> indices{2, 1, 0, 1, 0, 2, 2, 0, 1, 0, 1, 2};
  const BlockListViews views{
      .query_block = 16,
      .key_block = 16,
      .kv_num_blocks = ConstView(counts.data(), {1, 2, 2}),
      .kv_indices = ConstView(indices.data() + 11, {2, 1, 2, 3}, {-6, 0, -3, -1})};
  const Selection selection = select_blocks(
      views, {.batch = 2, .heads = 2, .queries = 32, .keys = 48}, 2, *serial_executor());
  EXPECT_TRUE(selection.per_batch());
  EXPECT_TRUE(selection.per_head());
  EXPECT_EQ(row(selection, 0, 0, 0), (Runs{{32, 48, false}}));
  EXPECT_EQ(row(selection, 1, 0, 0), (Runs{{32, 48, false}}));
  EXPECT_EQ(row(selection, 1, 1, 0), Runs{layout::Run::stepped({0, 16, 32, 2}, false)});
  EXPECT_EQ(row(selection, 1, 1, 1), (Runs{{0, 16, false}}));
}

// --- layouts ------------------------------------------------------------------------------------

TEST(BuildListed, TheMaskStillDecides) {
  const std::vector<std::int64_t> tokens{0, 5, 20, 21};
  const Selection selection =
      selected({16, 1, ConstView(tokens.data(), {1, 1, 1, 4})}, {.queries = 16, .keys = 32});
  const Layout layout = build(mask_of("q >= kv"), selection, Tiles({}, 16, 16), *serial_executor());
  EXPECT_EQ(runs_of(layout, 0, 0, 0), (Runs{{0, 1, true}, {5, 6, false}}));
}

TEST(BuildListed, BlocksInTheOrderOfTheKeys) {
  const std::vector<std::int32_t> blocks{7, 0, 0, 0, 0, 0, 1, 2, 3, 5, 0, 0};
  const std::vector<std::int32_t> counts{2, 0, 3, 1};
  const Selection selection = selected(
      {32, 16, ConstView(blocks.data(), {1, 1, 4, 3}), ConstView(counts.data(), {1, 1, 4})},
      {.queries = 100, .keys = 128});
  const Layout layout =
      build(mask_of("kv != 40"), selection, tiles_for(selection, {}), *serial_executor());
  EXPECT_EQ(to_text(layout),
            "100 x 128 pairs, 4 tiles of up to 32 queries (blocks of 32), 4 runs, 244 bytes\n"
            "tile 0, 32 queries from 0 in steps of 1: [0, 128) step 112 width 16 full\n"
            "tile 1, 32 queries from 32 in steps of 1:\n"
            "tile 2, 32 queries from 64 in steps of 1: [16, 40) full [41, 64) full\n"
            "tile 3, 4 queries from 96 in steps of 1: [80, 96) full\n");
}

// One list for all heads, in which each sees something else.
TEST(BuildListed, UnderAMaskOfHeads) {
  const Extent extent{.batch = 2, .heads = 3, .queries = 32, .keys = 64};
  const Selection selection(extent, 32, 1, 1, {{{16, 48, false}}});
  const Layout layout =
      build(mask_of("kv < 20 + 10 * h"), selection, Tiles({}, 32, 32), *tbb_executor(2));
  EXPECT_FALSE(layout.per_batch());
  EXPECT_TRUE(layout.per_head());
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 3; ++h)
      EXPECT_EQ(runs_of(layout, b, h, 0), (Runs{{16, 20 + 10 * h, true}})) << h;
}

TEST(BuildListed, TilesFillVectorsInsideABlock) {
  const TileWeights weights{.lanes = 16, .weight = {30, 35, 49}};
  const auto heights = [&](std::int64_t block) { return best_height(block, weights); };
  EXPECT_EQ(heights(1), 1);
  EXPECT_EQ(heights(16), 16);
  EXPECT_EQ(heights(40), 40);   // one tile of three vectors
  EXPECT_EQ(heights(64), 32);   // 2 x 35 is less than 49 + 30
  EXPECT_EQ(heights(96), 48);   // 2 x 49 is less than 3 x 35
  EXPECT_EQ(heights(128), 48);  // 49 + 49 + 35 is less than 4 x 35
  EXPECT_EQ(heights(4096), 48);
}

// Random lists of keys, some of them whatever the mask says.
Runs random_list(test::Random& random, std::int64_t keys) {
  Runs list;
  const double share = test::random_real(random, 0, 1);
  const std::int64_t longest = test::random_int(random, 1, 30);
  for (std::int64_t key = 0; key < keys;) {
    const std::int64_t end = std::min(keys, key + test::random_int(random, 1, longest));
    if (test::chance(random, share)) append(list, key, end, test::chance(random, 0.2));
    key = end;
  }
  return list;
}

TEST(BuildListed, RandomMasksAndListsAreExact) {
  const auto executor = tbb_executor(2);
  for (int round = 0; round < test::fuzz_count(300); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    test::GraphOptions options = test::mask_options();
    options.operations = static_cast<int>(2 + seed % 10);
    const ir::Graph graph = test::random_graph(random, options);
    // With captures that are long enough for every read, or with reads outside of them.
    const bool long_enough = seed % 2 == 1;
    const test::Captures memory = test::random_captures(
        random, graph, {.shortest = long_enough ? 90 : 1, .longest = long_enough ? 95 : 60});
    const Mask mask{graph, memory.views};
    const Extent extent{test::random_int(random, 1, 2), test::random_int(random, 1, 2),
                        test::random_int(random, 0, 30),
                        test::random_int(random, 0, long_enough ? 90 : 180)};
    const std::int64_t block = test::random_int(random, 1, 20);
    const std::int64_t batches = test::chance(random, 0.5) ? extent.batch : 1;
    const std::int64_t heads = test::chance(random, 0.5) ? extent.heads : 1;
    const std::int64_t rows = (extent.queries.count() + block - 1) / block;
    std::vector<Runs> lists(static_cast<std::size_t>(batches * heads * rows));
    for (Runs& list : lists) list = random_list(random, extent.keys.count());
    const Selection selection(extent, block, batches, heads, lists);
    const Tiles tiles({.kind = Order::Kind::blocks, .modulus = block}, extent.queries,
                      test::random_int(random, 1, 20));
    const Layout layout = build(mask, selection, tiles, *executor);
    for (std::int64_t b = 0; b < extent.batch; ++b) {
      for (std::int64_t h = 0; h < extent.heads; ++h) {
        const auto sights = test::every_pair(mask, extent, b, h);
        std::vector<test::Sight> listed(sights.size(), test::Sight::hidden);
        for (std::int64_t q = 0; q < extent.queries.count(); ++q) {
          for_each_piece(selection.runs(b, h, q / block), [&](Range piece, bool full) {
            for (std::int64_t kv = piece.begin; kv < piece.end; ++kv) {
              const auto at = static_cast<std::size_t>(q * extent.keys.count() + kv);
              listed[at] = full ? test::Sight::visible : sights[at];
            }
          });
        }
        for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
          ASSERT_EQ(runs_of(layout, b, h, tile), test::brute_runs(listed, extent, tiles, tile))
              << ir::to_text(graph);
        }
      }
    }
  }
}

}  // namespace
}  // namespace treadle::layout
