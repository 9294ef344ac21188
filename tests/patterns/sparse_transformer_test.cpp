// The Sparse Transformer's patterns: its worked examples. Blocks of 4 are too small for
// blocksparse, but its formulas hold for them, and their pictures are small.
#include "treadle/sparse_transformer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mask_picture.h"

namespace treadle::patterns {
namespace {

using test::blocks_of;
using test::inside_block;
using test::Picture;
using test::picture;

std::int64_t count(const BlockLayout& layout, std::int64_t head = 0) {
  std::int64_t present = 0;
  for (const std::string& row : blocks_of(layout, head)) {
    present += std::count(row.begin(), row.end(), '#');
  }
  return present;
}

std::int64_t longest_row(const BlockLayout& layout, std::int64_t head = 0) {
  std::int64_t most = 0;
  for (const std::string& row : blocks_of(layout, head)) {
    most = std::max<std::int64_t>(most, std::count(row.begin(), row.end(), '#'));
  }
  return most;
}

// ---- which blocks ----

TEST(SparseTransformer, AllBlocks) {
  EXPECT_EQ(blocks_of(all_layout(16, {.size = 4})), (Picture{"#...", "##..", "###.", "####"}));
}

TEST(SparseTransformer, LocalBlocks) {
  EXPECT_EQ(blocks_of(local_layout({.window = 4}, 16, {.size = 4})),
            (Picture{"#...", "##..", ".##.", "..##"}));
  EXPECT_EQ(blocks_of(local_layout({.window = 8}, 16, {.size = 4})),
            (Picture{"#...", "##..", "###.", ".###"}));
}

TEST(SparseTransformer, StridedBlocks) {
  EXPECT_EQ(blocks_of(strided_layout({.stride = 4}, 16, {.size = 4})),
            (Picture{"#...", ".#..", "..#.", "...#"}));
  EXPECT_EQ(blocks_of(strided_layout({.stride = 2}, 16, {.size = 4})),
            (Picture{"#...", "##..", "..#.", "..##"}));
  EXPECT_EQ(blocks_of(strided_layout({.stride = 4}, 32, {.size = 4})),
            (Picture{"#.......", "##......", "..#.....", "..##....", "....#...", "....##..",
                     "......#.", "......##"}));
  EXPECT_EQ(blocks_of(strided_layout({.stride = 2}, 32, {.size = 4})),
            (Picture{"#.......", "##......", "###.....", "####....", "....#...", "....##..",
                     "....###.", "....####"}));
}

TEST(SparseTransformer, FixedBlocksPerHead) {
  const BlockLayout layout =
      fixed_layout({.window = 16, .num_verts = 4, .vertsize = 1}, 32, {.size = 4, .heads = 4});
  const Picture causal{"#.......", "##......", "###.....", "####...."};
  const std::vector<Picture> later{{"...##...", "...###..", "...####.", "...#####"},
                                   {"..#.#...", "..#.##..", "..#.###.", "..#.####"},
                                   {".#..#...", ".#..##..", ".#..###.", ".#..####"},
                                   {"#...#...", "#...##..", "#...###.", "#...####"}};
  ASSERT_EQ(layout.lut_heads, 4);
  for (std::int64_t head = 0; head < 4; ++head) {
    Picture expected = causal;
    const Picture& rest = later[static_cast<std::size_t>(head)];
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(blocks_of(layout, head), expected);
    EXPECT_EQ(count(layout, head), 24);
  }
  const BlockLayout shared =
      fixed_layout({.window = 16, .num_verts = 1}, 32, {.size = 4, .heads = 4});
  EXPECT_EQ(shared.lut_heads, 1);
  EXPECT_EQ(shared.heads, 4);
  EXPECT_EQ(blocks_of(shared), blocks_of(layout, 0));
}

TEST(SparseTransformer, FixedBlocksWithWideGroups) {
  const BlockLayout layout =
      fixed_layout({.window = 16, .num_verts = 2, .vertsize = 2}, 32, {.size = 4, .heads = 4});
  for (const std::int64_t head : {0, 1, 2, 3}) {
    const Picture blocks = blocks_of(layout, head);
    EXPECT_EQ(blocks[4], head % 2 == 0 ? "..###..." : "##..#...");
    EXPECT_EQ(blocks[7], head % 2 == 0 ? "..######" : "##..####");
    EXPECT_EQ(count(layout, head), 28);
  }
}

TEST(SparseTransformer, FixedBlocksOfOtherSizes) {
  const BlockLayout six =
      fixed_layout({.window = 16, .num_verts = 2, .vertsize = 1}, 48, {.size = 8, .heads = 2});
  EXPECT_EQ(blocks_of(six, 0),
            (Picture{"#.....", "##....", ".##...", ".###..", ".#.##.", ".#.###"}));
  EXPECT_EQ(blocks_of(six, 1),
            (Picture{"#.....", "##....", "#.#...", "#.##..", "#.#.#.", "#.#.##"}));
  EXPECT_EQ(count(six, 0), 15);
  EXPECT_EQ(six.block_count(), 15);

  const BlockLayout cut_off =
      fixed_layout({.window = 16, .num_verts = 2, .vertsize = 1}, 20, {.size = 4, .heads = 2});
  EXPECT_EQ(blocks_of(cut_off, 0).back(), "...##");
  EXPECT_EQ(blocks_of(cut_off, 1).back(), "..#.#");
  EXPECT_EQ(count(cut_off, 0), 12);
  EXPECT_EQ(count(cut_off, 1), 12);

  const BlockLayout whole =
      fixed_layout({.window = 8, .num_verts = 1, .vertsize = 2}, 24, {.size = 4});
  EXPECT_EQ(blocks_of(whole), blocks_of(all_layout(24, {.size = 4})));
  EXPECT_EQ(count(whole), 21);
}

// ---- inside a block ----

TEST(SparseTransformer, InsideABlock) {
  const Picture full{"####", "####", "####", "####"};
  const Picture triangle{"#...", "##..", "###.", "####"};
  const Picture tail{".###", "..##", "...#", "...."};
  const BlockLayout wide = local_layout({.window = 8}, 16, {.size = 4});
  EXPECT_EQ(inside_block(wide, 2, 0), tail);
  EXPECT_EQ(inside_block(wide, 2, 1), full);
  EXPECT_EQ(inside_block(wide, 2, 2), triangle);
  EXPECT_EQ(inside_block(local_layout({.window = 4}, 16, {.size = 4}), 1, 0), tail);
  const std::vector<BlockLayout> others{
      all_layout(16, {.size = 4}), strided_layout({.stride = 2}, 16, {.size = 4}),
      fixed_layout({.window = 8, .num_verts = 1}, 16, {.size = 4})};
  for (const BlockLayout& layout : others) {
    EXPECT_EQ(inside_block(layout, 1, 1), triangle);
    EXPECT_EQ(inside_block(layout, 1, 0), full);
  }
}

// ---- the permutation ----

TEST(SparseTransformer, StridedOrder) {
  using Positions = std::vector<std::int64_t>;
  const StridedOrder square(16, 4);
  EXPECT_EQ(square.all_to_new(), (Positions{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}));
  EXPECT_EQ(square.all_to_old(), square.all_to_new());

  Positions halves;
  for (std::int64_t i = 0; i < 16; ++i) halves.insert(halves.end(), {i, 16 + i});
  EXPECT_EQ(StridedOrder(32, 2).all_to_new(), halves);

  const StridedOrder quarters(32, 4);
  Positions expected;
  for (std::int64_t i = 0; i < 8; ++i) expected.insert(expected.end(), {i, 8 + i, 16 + i, 24 + i});
  EXPECT_EQ(quarters.all_to_new(), expected);
  const Positions old = quarters.all_to_old();
  EXPECT_EQ(Positions(old.begin() + 12, old.begin() + 16), (Positions{17, 21, 25, 29}));
  EXPECT_TRUE(StridedOrder(0, 4).all_to_new().empty());
}

TEST(SparseTransformer, StridedOrderComesBack) {
  for (const std::int64_t stride : {1, 2, 3, 6, 12}) {
    const StridedOrder order(12, stride);
    for (std::int64_t p = 0; p < 12; ++p) {
      EXPECT_EQ(order.to_old(order.to_new(p)), p);
      EXPECT_EQ(order.to_new(order.to_old(p)), p);
    }
    // The same on traced indices: visible exactly where kv is the new, then the old, place of q.
    const Picture forth =
        picture([=](Index, Index, Index q, Index kv) { return order.to_new(q) == kv; },
                {.queries = 12, .keys = 12});
    const Picture back =
        picture([=](Index, Index, Index q, Index kv) { return order.to_old(q) == kv; },
                {.queries = 12, .keys = 12});
    EXPECT_EQ(forth, test::drawn(12, 12, [&](auto q, auto kv) { return order.to_new(q) == kv; }));
    EXPECT_EQ(back, test::drawn(12, 12, [&](auto q, auto kv) { return order.to_old(q) == kv; }));
  }
}

// ---- live blocks at real sizes ----

TEST(SparseTransformer, LiveBlocks) {
  const Blocks blocks{.size = 32, .heads = 8};
  const auto expect = [](const BlockLayout& layout, std::int64_t live, std::int64_t row) {
    EXPECT_EQ(layout.block_count(), live);
    EXPECT_EQ(longest_row(layout), row);
  };
  const Fixed summary{.window = 128, .num_verts = 4, .vertsize = 1};
  expect(all_layout(1024, blocks), 528, 32);
  expect(local_layout({.window = 32}, 1024, blocks), 63, 2);
  expect(strided_layout({.stride = 32}, 1024, blocks), 32, 1);
  expect(fixed_layout(summary, 1024, blocks), 192, 11);
  expect(all_layout(12288, blocks), 73920, 384);
  expect(fixed_layout(summary, 12288, blocks), 19200, 99);
  expect(local_layout({.window = 128}, 12288, blocks), 1910, 5);
  expect(strided_layout({.stride = 128}, 12288, blocks), 768, 3);
  expect(local_layout({.window = 32}, 3072, blocks), 191, 2);
  expect(strided_layout({.stride = 32}, 3072, blocks), 192, 3);
  EXPECT_EQ(all_layout(3072, blocks).block_count(), 4656);
}

TEST(SparseTransformer, GraphsOfMasks) {
  const auto text = [](const MaskMod& mask) { return test::traced_mask(mask).text(); };
  EXPECT_EQ(text(all()), "q >= kv");
  EXPECT_EQ(text(local({.window = 128})), "q >= kv && q - kv < 128");
  EXPECT_EQ(text(strided({.stride = 128})), "q >= kv && (q - kv) % 128 == 0");
  EXPECT_EQ(text(fixed({.window = 128}, {.size = 32, .heads = 8})),
            "q >= kv && (kv // 128 == q // 128 || (127 - kv % 128) // 32 == h % 4)");
  EXPECT_EQ(text(fixed({.window = 128, .num_verts = 1}, {.size = 32, .heads = 8})),
            "q >= kv && (kv // 128 == q // 128 || (127 - kv % 128) // 32 == 0)");
}

}  // namespace
}  // namespace treadle::patterns
