// FlexAttention's block lists: as PyTorch makes them, of masks and of layouts, and back again.
#include "layout/block_lists.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "brute_layout.h"
#include "expect_error.h"
#include "fuzz.h"
#include "ir/print.h"
#include "parsed_mask.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::layout {
namespace {

using Numbers = std::vector<std::int32_t>;

Numbers numbers(const Tensor& tensor) {
  const auto data = tensor.data<std::int32_t>();
  return {data.begin(), data.end()};
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
  const Layout through =
      build(mask, select_blocks(lists.views(), extent, extent.heads, executor), tiles, executor);
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

// --- of layouts ---------------------------------------------------------------------------------

// What lists and mask show together.
bool shows(const BlockLists& lists, const std::vector<test::Sight>& sights, const Extent& extent,
           std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t kv) {
  const auto lists_it = [&](const Tensor& counts, const Tensor& indices) {
    const std::int64_t row = q / lists.query_block;
    for (std::int32_t i = 0; i < counts.at<std::int32_t>({b, h, row}); ++i) {
      if (indices.at<std::int32_t>({b, h, row, i}) == kv / lists.key_block) return true;
    }
    return false;
  };
  if (lists_it(lists.full_kv_num_blocks, lists.full_kv_indices)) return true;
  const bool visible =
      sights[static_cast<std::size_t>(q * extent.keys.count() + kv)] == test::Sight::visible;
  return visible && lists_it(lists.kv_num_blocks, lists.kv_indices);
}

TEST(BlockListsOfLayouts, ShowWhatTheLayoutShowsInAnyOrder) {
  const auto executor = tbb_executor(2);
  const Extent extent{.batch = 1, .heads = 2, .queries = 70, .keys = 50};
  const Mask mask = mask_of("q >= kv && (q - kv) % 3 == h || q // 16 == kv // 16");
  for (const Order& order :
       {Order{}, Order{.kind = Order::Kind::blocks, .modulus = 24},
        Order{.kind = Order::Kind::residue, .modulus = 3},
        Order{.kind = Order::Kind::rectangle, .modulus = 10, .rows = 2, .columns = 5}}) {
    for (const BlockListOptions& options :
         {BlockListOptions{16, 16}, BlockListOptions{7, 20}, BlockListOptions{100, 1, true}}) {
      const Layout layout = build(mask, extent, Tiles(order, 70, 12), *executor);
      const BlockLists lists = to_block_lists(layout, nullptr, options, *executor);
      for (std::int64_t h = 0; h < 2; ++h) {
        const auto sights = test::every_pair(mask, extent, 0, h);
        for (std::int64_t i = 0; i < 70 * 50; ++i) {
          const bool visible = sights[static_cast<std::size_t>(i)] == test::Sight::visible;
          ASSERT_EQ(shows(lists, sights, extent, 0, h, i / 50, i % 50), visible)
              << to_text(order) << ", q " << i / 50 << ", kv " << i % 50;
        }
      }
    }
  }
}

// Where every tile has queries of one row only, nothing is lost.
TEST(BlockListsOfLayouts, AreExactWhereTilesTell) {
  const auto executor = serial_executor();
  const Extent extent{.queries = 100, .keys = 90};
  const Mask mask = mask_of("q >= kv && q - kv < 40");
  const BlockLists exact = to_block_lists(mask, extent, {32, 16}, *executor);
  const Tiles tiles({.kind = Order::Kind::blocks, .modulus = 32}, 100, 12);
  const BlockLists lists =
      to_block_lists(build(mask, extent, tiles, *executor), nullptr, {32, 16}, *executor);
  EXPECT_EQ(numbers(lists.kv_num_blocks), numbers(exact.kv_num_blocks));
  EXPECT_EQ(numbers(lists.kv_indices), numbers(exact.kv_indices));
  EXPECT_EQ(numbers(lists.full_kv_num_blocks), numbers(exact.full_kv_num_blocks));
  EXPECT_EQ(numbers(lists.full_q_indices), numbers(exact.full_q_indices));
}

// Finer and coarser blocks than the listed ones, as long as they are whole.
TEST(BlockListsOfLayouts, OfListedKeysMustBeWholeBlocks) {
  const auto executor = serial_executor();
  const Extent extent{.queries = 64, .keys = 60};
  // Two blocks of 32 queries: keys 16 .. 31 and 32 .. 59, the last of them whatever the mask says.
  const Selection listed(extent, 32, 1, 1,
                         {{{16, 32, false}, {48, 60, true}}, {{16, 32, false}, {48, 60, true}}});
  const Mask mask = mask_of("q >= kv");
  const Layout layout = build(mask, listed, Tiles({}, 64, 32), *executor);
  const auto lists = [&](std::int64_t queries, std::int64_t keys) {
    return to_block_lists(layout, &listed, {queries, keys}, *executor);
  };
  const BlockLists fine = lists(16, 4);
  EXPECT_EQ(numbers(fine.full_kv_num_blocks), (Numbers{3, 3, 3 + 4, 3 + 4}));
  const BlockLists coarse = lists(64, 16);  // both blocks have the same list
  EXPECT_EQ(numbers(coarse.kv_num_blocks), (Numbers{1}));
  EXPECT_EQ(numbers(coarse.full_kv_num_blocks), (Numbers{1}));
  EXPECT_ERROR(lists(16, 32),
               "block_lists: batch 0, head 0, query block 0 of the layout lists keys 16 up to 32; "
               "blocks of 32 keys cannot say so");

  const Selection different(extent, 32, 1, 1, {{{16, 32, false}}, {}});
  const Layout other = build(mask, different, Tiles({}, 64, 32), *executor);
  EXPECT_ERROR(
      to_block_lists(other, &different, {64, 16}, *executor),
      "block_lists: batch 0, head 0: queries 31 and 32 of the layout have different lists; "
      "blocks of 64 queries cannot say so");
}

TEST(BlockLists, BadOptions) {
  const Extent extent{.queries = 10, .keys = 10};
  EXPECT_ERROR(to_block_lists(mask_of("true"), extent, {.query_block = -1}, *serial_executor()),
               "block_lists: the query block is -1; it must be at least 1");
  EXPECT_ERROR(to_block_lists(mask_of("true"), extent, {.key_block = 0}, *serial_executor()),
               "block_lists: the key block is 0; it must be at least 1");
}

}  // namespace
}  // namespace treadle::layout
