// FlexAttention's block lists: as PyTorch makes them, there and back again, and what is refused.
#include "layout/block_lists.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "brute_layout.h"
#include "expect_error.h"
#include "fuzz.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::layout {
namespace {

using Numbers = std::vector<std::int32_t>;

Mask mask_of(std::string_view text) { return {ir::parse(text, {}), {}}; }

Numbers numbers(const Tensor& tensor) {
  const auto data = tensor.data<std::int32_t>();
  return {data.begin(), data.end()};
}

// --- out ----------------------------------------------------------------------------------------

using Runs = std::vector<Run>;

Runs runs_of(const Layout& layout, std::int64_t tile) {
  const auto runs = layout.runs(0, 0, tile);
  return {runs.begin(), runs.end()};
}

TEST(BlockLists, TailsAreAsInPyTorchIfWanted) {
  // create_block_mask(noop_mask, 1, 1, 10, 10, BLOCK_SIZE=4)
  const Extent extent{.queries = 10, .keys = 10};
  const BlockLists torch =
      to_block_lists(mask_of("true"), extent, {4, 4, true}, *serial_executor());
  EXPECT_EQ(numbers(torch.full_kv_num_blocks), (Numbers{2, 2, 0}));
  EXPECT_EQ(numbers(torch.full_kv_indices), (Numbers{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(numbers(torch.kv_num_blocks), (Numbers{1, 1, 3}));
  EXPECT_EQ(numbers(torch.kv_indices), (Numbers{2, 0, 1, 2, 0, 1, 0, 1, 2}));
  EXPECT_EQ(numbers(torch.q_num_blocks), (Numbers{1, 1, 3}));
  EXPECT_EQ(numbers(torch.full_q_num_blocks), (Numbers{2, 2, 0}));

  const BlockLists ours = to_block_lists(mask_of("true"), extent, {4, 4}, *serial_executor());
  EXPECT_EQ(numbers(ours.full_kv_num_blocks), (Numbers{3, 3, 3}));
  EXPECT_EQ(numbers(ours.kv_num_blocks), (Numbers{0, 0, 0}));
}

TEST(BlockLists, ShapesAreThoseOfTheExtent) {
  const BlockLists lists =
      to_block_lists(mask_of("q >= kv"), {2, 3, 100, 50}, {32, 16}, *serial_executor());
  EXPECT_EQ(lists.kv_num_blocks.shape(), (Dims{2, 3, 4}));
  EXPECT_EQ(lists.full_kv_indices.shape(), (Dims{2, 3, 4, 4}));
  EXPECT_EQ(lists.q_num_blocks.shape(), (Dims{2, 3, 4}));
  EXPECT_EQ(lists.full_q_indices.shape(), (Dims{2, 3, 4, 4}));
  EXPECT_EQ(lists.query_block, 32);
  EXPECT_EQ(lists.key_block, 16);
}

// What one list must be: those that are listed, then the others.
template <class Listed>
Numbers sorted_as_torch(std::int64_t count, Listed listed) {
  Numbers row;
  for (const bool wanted : {true, false}) {
    for (int i = 0; i < count; ++i) {
      if (listed(i) == wanted) row.push_back(i);
    }
  }
  return row;
}

// 0: no pair of the block is visible, 2: all are, 1: neither.
int kind_of(const std::vector<test::Sight>& sights, const Extent& extent,
            const BlockListOptions& options, std::int64_t row, std::int64_t column) {
  std::int64_t visible = 0;
  std::int64_t possible = 0;
  std::int64_t pairs = 0;
  for (std::int64_t q = row * options.query_block;
       q < std::min((row + 1) * options.query_block, extent.queries.count()); ++q) {
    for (std::int64_t kv = column * options.key_block;
         kv < std::min((column + 1) * options.key_block, extent.keys.count()); ++kv) {
      const test::Sight sight = sights[static_cast<std::size_t>(q * extent.keys.count() + kv)];
      visible += sight == test::Sight::visible ? 1 : 0;
      possible += sight != test::Sight::hidden ? 1 : 0;
      ++pairs;
    }
  }
  if (options.tails_partial) pairs = options.query_block * options.key_block;
  return possible == 0 ? 0 : visible == pairs ? 2 : 1;
}

void expect_lists(const Mask& mask, const Extent& extent, const BlockListOptions& options,
                  const BlockLists& lists) {
  const std::int64_t rows = lists.kv_num_blocks.size(2);
  const std::int64_t columns = lists.q_num_blocks.size(2);
  struct Output {
    const Tensor &counts, &indices;
    int kind;
    bool by_query;
  };
  const std::vector<Output> outputs{{lists.kv_num_blocks, lists.kv_indices, 1, true},
                                    {lists.full_kv_num_blocks, lists.full_kv_indices, 2, true},
                                    {lists.q_num_blocks, lists.q_indices, 1, false},
                                    {lists.full_q_num_blocks, lists.full_q_indices, 2, false}};
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      const auto sights = test::every_pair(mask, extent, b, h);
      for (const Output& out : outputs) {
        for (std::int64_t i = 0; i < (out.by_query ? rows : columns); ++i) {
          const std::int64_t others = out.by_query ? columns : rows;
          const auto listed = [&](std::int64_t j) {
            return kind_of(sights, extent, options, out.by_query ? i : j, out.by_query ? j : i) ==
                   out.kind;
          };
          std::int32_t count = 0;
          for (std::int64_t j = 0; j < others; ++j) count += listed(j) ? 1 : 0;
          ASSERT_EQ(out.counts.at<std::int32_t>({b, h, i}), count) << ir::to_text(mask.graph);
          Numbers row;
          for (std::int64_t j = 0; j < others; ++j) {
            row.push_back(out.indices.at<std::int32_t>({b, h, i, j}));
          }
          ASSERT_EQ(row, sorted_as_torch(others, listed)) << ir::to_text(mask.graph);
        }
      }
    }
  }
}

// The same lists again, as a selection: nothing may get lost.
void expect_round_trip(const Mask& mask, const Extent& extent, const BlockLists& lists,
                       Executor& executor) {
  const Tiles tiles({.kind = Order::Kind::blocks, .modulus = lists.query_block}, extent.queries,
                    std::max<std::int64_t>(lists.query_block / 2, 1));
  const Layout direct = build(mask, extent, tiles, executor);
  const Layout through = build(mask, from_block_lists(lists.views(), extent), tiles, executor);
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
        ASSERT_TRUE(std::ranges::equal(direct.runs(b, h, tile), through.runs(b, h, tile)))
            << ir::to_text(mask.graph) << "\n"
            << to_text(direct) << to_text(through);
      }
    }
  }
}

TEST(BlockLists, RandomMasksThereAndBack) {
  const auto executor = tbb_executor(2);
  for (int round = 0; round < test::fuzz_count(600); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    test::GraphOptions options = test::mask_options();
    options.operations = static_cast<int>(3 + seed % 10);
    const ir::Graph graph = test::random_graph(random, options);
    const test::Captures memory =
        test::random_captures(random, graph, {.shortest = seed % 2 == 0 ? 1 : 70, .longest = 80});
    const Mask mask{graph, memory.views};
    const Extent extent{test::random_int(random, 1, 2), test::random_int(random, 1, 2),
                        test::random_int(random, 0, 70), test::random_int(random, 0, 70)};
    const BlockListOptions how{test::random_int(random, 1, 20), test::random_int(random, 1, 20),
                               seed % 4 == 0};
    const BlockLists lists = to_block_lists(mask, extent, how, *executor);
    expect_lists(mask, extent, how, lists);
    expect_round_trip(mask, extent, lists, *executor);
    if (HasFatalFailure()) return;
  }
}

TEST(BlockLists, OfNothing) {
  const Mask mask = mask_of("q >= kv");
  for (const Extent& extent : {Extent{.queries = 40, .keys = 0}, Extent{.queries = 0, .keys = 40},
                               Extent{.queries = 0, .keys = 0}}) {
    const BlockListOptions how{.query_block = 16, .key_block = 8};
    const BlockLists lists = to_block_lists(mask, extent, how, *serial_executor());
    expect_lists(mask, extent, how, lists);
    expect_round_trip(mask, extent, lists, *serial_executor());
  }
}

// --- in -----------------------------------------------------------------------------------------

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
  [[nodiscard]] Selection selection() const { return from_block_lists(views(), extent); }
};

std::vector<Stretch> row(const Selection& selection, std::int64_t b, std::int64_t h,
                         std::int64_t block) {
  const auto stretches = selection.stretches(b, h, block);
  return {stretches.begin(), stretches.end()};
}

TEST(BlockLists, AnyOrderAndAnythingBehindTheCount) {
  const Selection selection = Given().selection();
  EXPECT_EQ(row(selection, 0, 0, 0),
            (std::vector<Stretch>{{0, 16, false}, {16, 32, true}, {32, 40, false}}));
  EXPECT_EQ(row(selection, 0, 0, 1), (std::vector<Stretch>{{16, 32, false}}));
  EXPECT_FALSE(selection.per_batch());
  EXPECT_FALSE(selection.per_head());
}

TEST(BlockLists, FullBlocksSkipTheMask) {
  const Tiles tiles({.kind = Order::Kind::blocks, .modulus = 16}, 32, 16);
  const Layout layout = build(mask_of("kv == 3"), Given().selection(), tiles, *serial_executor());
  EXPECT_EQ(runs_of(layout, 0), (Runs{{3, 4, true}, {16, 32, true}}));
  EXPECT_EQ(runs_of(layout, 1), Runs());
}

TEST(BlockLists, FullListsMayBeMissing) {
  const Given given;
  BlockListViews views = given.views();
  views.full_kv_num_blocks.reset();
  views.full_kv_indices.reset();
  EXPECT_EQ(row(from_block_lists(views, given.extent), 0, 0, 0),
            (std::vector<Stretch>{{0, 16, false}, {32, 40, false}}));
}

TEST(BlockLists, BatchesAndHeadsOfTheirOwnInAnyStrides) {
  // Counts per head, indices per batch that run backwards, full lists for all.
  const std::vector<std::int32_t> counts{1, 0, 2, 1};
  const std::vector<std::int64_t> indices{2, 1, 0, 1, 0, 2, 2, 0, 1, 0, 1, 2};
  BlockListViews views{.query_block = 16,
                       .key_block = 16,
                       .kv_num_blocks = ConstView(counts.data(), {1, 2, 2}),
                       .kv_indices = ConstView(indices.data() + 11, {2, 1, 2, 3}, {-6, 0, -3, -1})};
  const Selection selection =
      from_block_lists(views, {.batch = 2, .heads = 2, .queries = 32, .keys = 48});
  EXPECT_TRUE(selection.per_batch());
  EXPECT_TRUE(selection.per_head());
  EXPECT_EQ(row(selection, 0, 0, 0), (std::vector<Stretch>{{32, 48, false}}));
  EXPECT_EQ(row(selection, 1, 0, 0), (std::vector<Stretch>{{32, 48, false}}));
  EXPECT_EQ(row(selection, 1, 1, 0), (std::vector<Stretch>{{0, 16, false}, {32, 48, false}}));
  EXPECT_EQ(row(selection, 1, 1, 1), (std::vector<Stretch>{{0, 16, false}}));
}

TEST(BlockLists, BadNumbers) {
  Given given;
  given.indices[1] = 3;
  EXPECT_ERROR(given.selection(),
               "block lists: batch 0, head 0, query block 0: kv_indices names key block 3; 40 keys "
               "in blocks of 16 make 3 blocks");
  given.indices[1] = -1;
  EXPECT_ERROR(given.selection(),
               "block lists: batch 0, head 0, query block 0: kv_indices names key block -1; 40 "
               "keys in blocks of 16 make 3 blocks");
  given.indices[1] = 2;
  EXPECT_ERROR(given.selection(),
               "block lists: batch 0, head 0, query block 0: kv_indices names key block 2 twice");
  given.indices[1] = 1;
  EXPECT_ERROR(given.selection(),
               "block lists: batch 0, head 0, query block 0: key block 1 is listed as partial and "
               "as full");
  given = {};
  given.counts[1] = 4;
  EXPECT_ERROR(given.selection(),
               "block lists: batch 0, head 0, query block 1: the count of kv_indices is 4; a row "
               "holds 0 to 3");
  given.counts[1] = -1;
  EXPECT_ERROR(given.selection(),
               "block lists: batch 0, head 0, query block 1: the count of kv_indices is -1; a row "
               "holds 0 to 3");
}

TEST(BlockLists, BadShapes) {
  const Given given;
  BlockListViews views = given.views();
  const auto select = [&] { return from_block_lists(views, given.extent); };
  views.query_block = 0;
  EXPECT_ERROR(select(), "block lists: the query block is 0; it must be at least 1");
  views = given.views();
  views.query_block = 8;
  EXPECT_ERROR(
      select(),
      "block lists: the array of counts of kv_indices has shape [1, 1, 2]; [1, 1, 4] is needed, "
      "where batch and heads may also be 1");
  views = given.views();
  views.kv_indices = ConstView(given.indices.data(), {2, 3});
  EXPECT_ERROR(select(),
               "block lists: kv_indices has shape [2, 3]; [batch, heads, query blocks, longest "
               "list] is needed");
  views = given.views();
  views.kv_indices = ConstView(given.indices.data(), {3, 1, 2, 1});
  EXPECT_ERROR(select(),
               "block lists: kv_indices has shape [3, 1, 2, 1]; [1, 1, 2, 1] is needed, where "
               "batch and heads may also be 1");
  views = given.views();
  views.full_kv_num_blocks.reset();
  EXPECT_ERROR(select(),
               "block lists: full_kv_indices is given without full_kv_num_blocks; they belong "
               "together");
  views = given.views();
  const std::vector<float> floats(6);
  views.kv_indices = ConstView(floats.data(), {1, 1, 2, 3});
  EXPECT_ERROR(select(),
               "block lists: kv_indices holds elements of type f32; i32 or i64 is needed");
  EXPECT_ERROR(to_block_lists(mask_of("true"), given.extent, {.key_block = 0}, *serial_executor()),
               "block lists: the key block is 0; it must be at least 1");
}

}  // namespace
}  // namespace treadle::layout
