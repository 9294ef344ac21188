// OpenAI's block layouts, there and back again.
#include "patterns/openai_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "brute_layout.h"
#include "expect_error.h"
#include "fuzz.h"
#include "ir/parse.h"
#include "mask_picture.h"
#include "random_graph.h"
#include "random_points.h"
#include "treadle/sparse_transformer.h"

namespace treadle::patterns {
namespace {

using layout::Extent;
using layout::Layout;
using layout::Mask;
using layout::Order;
using Runs = std::vector<layout::Run>;
using layout::Tiles;

Mask mask_of(std::string_view text) { return {ir::parse(text, {}), {}}; }

struct Memory {
  test::Traced traced;
  Mask mask;
};

Memory traced(const BlockLayout& layout) {
  Memory memory{test::traced_mask(to_mask(layout)), {}};
  memory.mask.graph = memory.traced.graph;
  for (const ir::Slot& slot : memory.traced.graph.slots()) {
    const auto& captures = memory.traced.captures;
    memory.mask.memory.push_back(std::ranges::find(captures, slot.name, &Capture::name)->view());
  }
  return memory;
}

BlockLayout blocks_of_mask(const Mask& mask, std::int64_t heads, layout::Range queries,
                           layout::Range keys, std::int64_t size, Executor& executor,
                           const Order& order = {}, std::int64_t height = 8) {
  const Extent extent{.heads = heads, .queries = queries, .keys = keys};
  const Layout layout = build(mask, extent, Tiles(order, queries, height), executor);
  return to_block_layout(mask, layout, size, executor);
}

TEST(FromBlockLayout, ListsTheBlocksThatArePresent) {
  const BlockLayout blocks = local_layout({.window = 16}, 32, {.size = 8, .heads = 2});
  const Memory memory = traced(blocks);
  const layout::Selection selection =
      from_block_layout(blocks, memory.mask, {1, 2, 32, 30}, *serial_executor());
  EXPECT_FALSE(selection.per_head());
  EXPECT_EQ(selection.query_block(), 8);
  const auto first = selection.runs(0, 1, 0);
  EXPECT_EQ(Runs(first.begin(), first.end()), (Runs{{0, 8, false}}));
  const auto last = selection.runs(0, 1, 3);  // cut at the end
  EXPECT_EQ(Runs(last.begin(), last.end()), (Runs{{8, 30, false}}));
}

TEST(FromBlockLayout, WithItsMaskItIsTheMask) {
  for (const BlockLayout& blocks :
       {all_layout(64, {.size = 8, .heads = 2}),
        fixed_layout({.window = 32, .num_verts = 2}, 64, {.size = 8, .heads = 2}),
        local_layout({.window = 16}, 64, {.size = 16, .heads = 2})}) {
    const Memory memory = traced(blocks);
    const Extent extent{.batch = 2, .heads = 2, .queries = 60, .keys = 59};  // cut at the end
    const Tiles tiles({.kind = Order::Kind::blocks, .modulus = blocks.block_size}, 60, 8);
    const auto executor = serial_executor();
    const Layout direct = build(memory.mask, extent, tiles, *executor);
    const Layout through = build(
        memory.mask, from_block_layout(blocks, memory.mask, extent, *executor), tiles, *executor);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
        EXPECT_TRUE(std::ranges::equal(direct.runs(1, h, tile), through.runs(1, h, tile)));
      }
    }
  }
}

// A layout cannot hide single pairs, so the mask has to.
TEST(FromBlockLayout, AMaskThatShowsHiddenPairsIsRefused) {
  const BlockLayout blocks = all_layout(32, {.size = 8, .heads = 2});
  const Extent extent{.batch = 2, .heads = 2, .queries = 32, .keys = 32};
  const auto select = [&](std::string_view text) {
    return from_block_layout(blocks, mask_of(text), extent, *tbb_executor(2));
  };
  const auto shown = [](const char* pair) {
    return "layout: the mask shows " + std::string(pair) +
           ", which the block layout hides inside a block; compile with to_mask(block layout), "
           "alone or & others";
  };
  (void)select("q >= kv");
  (void)select("q >= kv && kv % 3 == h + b");
  EXPECT_ERROR(select("true"), shown("(b 0, h 0, q 0, kv 1)"));
  EXPECT_ERROR(select("q >= kv || q >= 20 && b == 1"), shown("(b 1, h 0, q 20, kv 21)"));
  EXPECT_ERROR(select("q >= kv || q >= 24 && h == 1"), shown("(b 0, h 1, q 24, kv 25)"));
  // Without a mask inside its blocks it hides none.
  BlockLayout open = blocks;
  open.mask = {};
  (void)from_block_layout(open, mask_of("true"), extent, *serial_executor());
}

TEST(ToBlockLayout, FindsTheLayoutOfAPattern) {
  const BlockLayout local = local_layout({.window = 16}, 64, {.size = 8, .heads = 3});
  const BlockLayout found =
      blocks_of_mask(mask_of("q >= kv && q - kv < 16"), 3, 64, 64, 8, *serial_executor());
  found.check();
  EXPECT_EQ(found.lut_heads, 1);
  EXPECT_EQ(found.heads, 3);
  EXPECT_EQ(test::blocks_of(found), test::blocks_of(local));
  EXPECT_EQ(mask_words(found), mask_words(local));
}

TEST(ToBlockLayout, HasNoMaskWhereAllIsVisible) {
  const BlockLayout found =
      blocks_of_mask(mask_of("q // 8 == kv // 8"), 1, 32, 32, 8, *serial_executor());
  EXPECT_FALSE(found.mask);
  EXPECT_EQ(test::blocks_of(found), (test::Picture{"#...", ".#..", "..#.", "...#"}));
}

TEST(ToBlockLayout, HeadsWithFewerBlocksAreFilledUp) {
  const BlockLayout found =
      blocks_of_mask(mask_of("h == 0 || kv >= 24 && q >= 24"), 2, 32, 32, 8, *serial_executor());
  EXPECT_EQ(found.block_count(), 16);
  EXPECT_EQ(test::pairs_of(found, 0), test::Picture(32, std::string(32, '#')));
  EXPECT_EQ(test::pairs_of(found, 1),
            test::drawn(32, 32, [](auto q, auto kv) { return q >= 24 && kv >= 24; }));
}

TEST(ToBlockLayout, RandomMasksThereAndBack) {
  const auto executor = tbb_executor(2);
  for (int round = 0; round < test::fuzz_count(300); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    test::GraphOptions options = test::mask_options();
    options.inputs = {ir::Input::h, ir::Input::q, ir::Input::kv};
    options.slots = {};
    options.may_poison = false;
    const Mask mask{test::random_graph(random, options), {}};
    const Extent extent{1, 2, test::random_int(random, 0, 40), test::random_int(random, 0, 40)};
    // Of a layout in any order.
    const Order order = seed % 3 == 0   ? Order()
                        : seed % 3 == 1 ? Order{.kind = Order::Kind::residue, .modulus = 3}
                                        : Order{.kind = Order::Kind::blocks, .modulus = 12};
    const BlockLayout found = blocks_of_mask(mask, 2, extent.queries, extent.keys, 8, *executor,
                                             order, test::random_int(random, 1, 20));
    found.check();
    for (std::int64_t h = 0; h < 2; ++h) {
      const auto sights = test::every_pair(mask, extent, 0, h);
      const auto visible = [&](std::int64_t q, std::int64_t kv) {
        return q < extent.queries.count() && kv < extent.keys.count() &&
               sights[static_cast<std::size_t>(q * extent.keys.count() + kv)] ==
                   test::Sight::visible;
      };
      EXPECT_EQ(test::pairs_of(found, found.lut_heads == 1 ? 0 : h),
                test::drawn(found.query_blocks * 8, found.key_blocks * 8, visible));
    }
  }
}

TEST(BlockLayouts, BadInput) {
  const auto executor = serial_executor();
  EXPECT_ERROR(blocks_of_mask(mask_of("true"), 1, 32, 32, 10, *executor),
               "block layout: blocks have 10 queries and keys; it must be 8, 16, 32 or 64");
  EXPECT_ERROR(blocks_of_mask(mask_of("b == 0"), 1, 32, 32, 8, *executor),
               "block_layout: what is visible depends on the batch; a block layout is for all");
  Tensor ids(DType::i32, {9});
  const std::vector<ir::Slot> slots{{"ids", DType::i32, 1}};
  const Mask short_ids{ir::parse("ids[q] == kv", slots), {ids}};
  EXPECT_ERROR(blocks_of_mask(short_ids, 1, 10, 8, 8, *executor),
               "block_layout: the mask fails at (h 0, q 9, kv 0): ids: index 9 along dimension 0 "
               "is outside its length 9");
  const BlockLayout blocks = all_layout(32, {.size = 8, .heads = 2});
  const auto select = [&](const Extent& extent) {
    return from_block_layout(blocks, mask_of("q >= kv"), extent, *executor);
  };
  EXPECT_ERROR(select({1, 2, 33, 32}),
               "layout: 33 queries in blocks of 8 make 5, the block layout has 4");
  EXPECT_ERROR(select({1, 2, 32, 20}),
               "layout: 20 keys in blocks of 8 make 3, the block layout has 4");
  EXPECT_ERROR(select({1, 3, 32, 32}), "layout: the block layout is for 2 heads, there are 3");
}

}  // namespace
}  // namespace treadle::patterns
