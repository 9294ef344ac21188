// Block layouts: blocksparse's tables and packed masks, its errors, and the layout as a mask.
#include "treadle/block_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "expect_error.h"
#include "mask_picture.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::pairs_of;
using test::picture;

using Lines = std::vector<std::array<std::int32_t, 2>>;

Lines lines(const Tensor& table, std::int64_t head = 0) {
  Lines found;
  for (std::int64_t i = 0; i < table.size(1); ++i) {
    found.push_back({table.at<std::int32_t>({head, i, 0}), table.at<std::int32_t>({head, i, 1})});
  }
  return found;
}

TEST(BlockLayout, TablesOfLocal) {
  const BlockLayout layout = patterns::local_layout({.window = 8}, 24, {.size = 8});
  EXPECT_EQ(layout.block_count(), 5);
  EXPECT_EQ(layout.block_numbers(), (std::vector<std::int32_t>{0, -1, -1, 1, 2, -1, -1, 3, 4}));
  const BlockTables tables = block_tables(layout);
  EXPECT_EQ(lines(tables.nt), (Lines{{0, 0}, {1, 0}, {1, 1}, {2, 1}, {2, 2}}));
  EXPECT_EQ(lines(tables.nn),
            (Lines{{3, 1}, {4, 2}, {6, 2}, {0, 0}, {1, 0}, {2, 1}, {3, 1}, {4, 2}}));
  EXPECT_EQ(lines(tables.tn),
            (Lines{{3, 2}, {5, 2}, {7, 1}, {0, 0}, {1, 1}, {2, 1}, {3, 2}, {4, 2}}));
  EXPECT_EQ(tables.nn_max, 2);
  EXPECT_EQ(tables.tn_max, 2);
}

TEST(BlockLayout, MaskWordsOfLocal) {
  const std::vector<std::uint64_t> words =
      mask_words(patterns::local_layout({.window = 8}, 24, {.size = 8}));
  const std::vector<std::uint64_t> diagonal{0x01, 0x03, 0x07, 0x0f, 0x1f, 0x3f, 0x7f, 0xff};
  const std::vector<std::uint64_t> below{0xfe, 0xfc, 0xf8, 0xf0, 0xe0, 0xc0, 0x80, 0x00};
  std::vector<std::uint64_t> expected;
  for (const auto& block : {diagonal, below, diagonal, below, diagonal}) {
    expected.insert(expected.end(), block.begin(), block.end());
  }
  EXPECT_EQ(words, expected);
}

TEST(BlockLayout, TablesOfAll) {
  const BlockTables tables = block_tables(patterns::all_layout(16, {.size = 8}));
  EXPECT_EQ(lines(tables.nt), (Lines{{0, 0}, {1, 0}, {1, 1}}));
  EXPECT_EQ(lines(tables.nn), (Lines{{2, 1}, {3, 2}, {0, 0}, {1, 0}, {2, 1}}));
  EXPECT_EQ(lines(tables.tn), (Lines{{2, 2}, {4, 1}, {0, 0}, {1, 1}, {2, 1}}));
}

TEST(BlockLayout, TablesPerHead) {
  const BlockLayout layout = patterns::fixed_layout({.window = 32, .num_verts = 4, .vertsize = 1},
                                                    64, {.size = 8, .heads = 4});
  const BlockTables tables = block_tables(layout);
  EXPECT_EQ(layout.lut_heads, 4);
  EXPECT_EQ(layout.block_count(), 24);
  EXPECT_EQ(tables.nn_max, 5);
  EXPECT_EQ(tables.tn_max, 8);
  EXPECT_EQ(tables.nn.shape(), (Dims{4, 32, 2}));
  EXPECT_EQ(mask_words(layout).size(), 4u * 24 * 8);
  // Head 1, row 4: two blocks, at key blocks 2 and 4.
  const Lines head1 = lines(tables.nn, 1);
  const auto [offset, count] = head1[4];
  ASSERT_EQ(count, 2);
  EXPECT_EQ(head1[static_cast<std::size_t>(offset)][1], 2);
  EXPECT_EQ(head1[static_cast<std::size_t>(offset) + 1][1], 4);
}

TEST(BlockLayout, EmptyRowsAndColumnsHaveNoEntries) {
  std::vector<std::int32_t> present{0, 0, 0, 0, 7, 0};
  const BlockLayout layout =
      block_layout(View(present.data(), {2, 3}), {.block_size = 8, .heads = 2});
  const BlockTables tables = block_tables(layout);
  EXPECT_EQ(lines(tables.nn), (Lines{{2, 0}, {2, 1}, {0, 1}}));
  EXPECT_EQ(lines(tables.tn), (Lines{{3, 0}, {3, 1}, {4, 0}, {0, 1}}));
  EXPECT_EQ(tables.nn_max, 1);
}

TEST(BlockLayout, WordsOf64Keys) {
  const BlockLayout layout = patterns::all_layout(64, {.size = 64});
  const std::vector<std::uint64_t> words = mask_words(layout);
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[63], ~std::uint64_t{0});
  EXPECT_EQ(picture(to_mask(layout), {.queries = 64, .keys = 64}), pairs_of(layout));
}

// ---- arrays ----

TEST(BlockLayout, FromAnArray) {
  // After the fraction is cut off: 1 0 / 0 -3.
  std::vector<float> present{1.5F, 0.5F, -0.9F, -3.0F};
  const View view(present.data(), {2, 2});
  const BlockLayout shared = block_layout(view, {.block_size = 8, .heads = 3});
  EXPECT_EQ(shared.lut_heads, 1);
  EXPECT_EQ(shared.heads, 3);
  EXPECT_EQ(test::blocks_of(shared), (test::Picture{"#.", ".#"}));

  std::vector<std::uint8_t> bytes{1, 9, 0, 0, 9, 1};
  const BlockLayout own = block_layout(View(bytes.data(), {2, 1, 2}, {3, 3, 2}), {.block_size = 8});
  EXPECT_EQ(own.heads, 2);
  EXPECT_EQ(own.lut_heads, 2);
  EXPECT_EQ(test::blocks_of(own, 0), test::Picture{"#."});
  EXPECT_EQ(test::blocks_of(own, 1), test::Picture{".#"});
}

TEST(BlockLayout, Errors) {
  std::vector<std::int32_t> ones(32, 1);
  const auto make = [&](const Dims& shape, std::int64_t block_size, std::int64_t heads) {
    return block_layout(View(ones.data(), shape), {.block_size = block_size, .heads = heads});
  };
  EXPECT_ERROR(make({2, 2}, 8, 0),
               "block layout: 0 heads; a layout that all heads share must say how many there are");
  EXPECT_ERROR(make({2, 2}, 4, 1),
               "block layout: blocks have 4 queries and keys; it must be 8, 16, 32 or 64");
  EXPECT_ERROR(make({4}, 8, 1),
               "block layout: the array has shape [4]; it must be [query blocks, key blocks] or "
               "[heads, query blocks, key blocks]");
  EXPECT_ERROR(make({1, 2, 2, 2}, 8, 1),
               "block layout: the array has shape [1, 2, 2, 2]; it must be [query blocks, key "
               "blocks] or [heads, query blocks, key blocks]");
  EXPECT_ERROR(make({2, 2, 2}, 8, 3),
               "block layout: 2 layouts for 3 heads; there must be one, or one per head");
  ones[5] = 0;
  EXPECT_ERROR(make({2, 2, 2}, 8, 2),
               "block layout: head 0 has 4 blocks, head 1 has 3; they must be equal");

  BlockLayout layout{.block_size = 8, .heads = 1, .query_blocks = 2, .key_blocks = 3};
  EXPECT_ERROR(layout.check(), "block layout: present has 0 elements; 1 x 2 x 3 are needed");
  layout.query_blocks = -1;
  EXPECT_ERROR(layout.check(), "block layout: -1 x 3 blocks; both must be at least 0");
  layout.heads = 0;
  layout.query_blocks = 0;
  EXPECT_ERROR(to_mask(layout),
               "block layout: 0 heads; a layout that all heads share must say how many there are");
}

// ---- as a mask ----

BlockLayout random_layout(std::mt19937& random, std::int64_t block_size, std::int64_t lut_heads) {
  BlockLayout layout{.block_size = block_size,
                     .heads = 3,
                     .lut_heads = lut_heads,
                     .query_blocks = 3,
                     .key_blocks = 4};
  // The same number of blocks in every head, at different places.
  std::vector<std::uint8_t> head{1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0};
  for (std::int64_t i = 0; i < lut_heads; ++i) {
    std::shuffle(head.begin(), head.end(), random);
    layout.present.insert(layout.present.end(), head.begin(), head.end());
  }
  layout.mask = [](const BlockCell& c) {
    // Depends on everything there is.
    return (c.head * 7 + c.query_block * 5 + c.key_block * 3 + c.block + c.row * 11 +
            c.column * 13) %
               4 !=
           0;
  };
  return layout;
}

TEST(BlockLayout, MaskIsTheLayoutPairByPair) {
  std::mt19937 random(1);
  for (const std::int64_t block_size : {8, 16, 32, 64}) {
    for (const std::int64_t lut_heads : {1, 3}) {
      BlockLayout layout = random_layout(random, block_size, lut_heads);
      for (int with_mask = 0; with_mask < 2; ++with_mask) {
        const MaskMod mask = to_mask(layout);
        for (std::int64_t h = 0; h < layout.heads; ++h) {
          EXPECT_EQ(picture(mask, {.queries = 3 * block_size, .keys = 4 * block_size, .h = h}),
                    pairs_of(layout, lut_heads == 1 ? 0 : h));
        }
        layout.mask = {};
      }
    }
  }
}

TEST(BlockLayout, NoBlocksAtAll) {
  BlockLayout layout{.block_size = 8,
                     .heads = 1,
                     .query_blocks = 1,
                     .key_blocks = 2,
                     .present = {0, 0},
                     .mask = [](const BlockCell&) { return true; }};
  EXPECT_EQ(picture(to_mask(layout), {.queries = 8, .keys = 16}),
            test::Picture(8, std::string(16, '.')));
}

TEST(BlockLayout, GraphsOfMasks) {
  BlockLayout layout = patterns::all_layout(16, {.size = 8, .heads = 2});
  EXPECT_EQ(test::traced_mask(to_mask(layout)).text(),
            "t0 = c0[0, q // 8, kv // 8];\n"
            "t0 >= 0 && c1[0, max(t0, 0), q % 8] >> kv % 8 & 1 == 1");
  layout.mask = {};
  EXPECT_EQ(test::traced_mask(to_mask(layout)).text(), "c0[0, q // 8, kv // 8] >= 0");
}

TEST(BlockLayout, SeveralInOneMask) {
  std::mt19937 random(2);
  const BlockLayout a = random_layout(random, 8, 1);
  const BlockLayout b = random_layout(random, 8, 3);
  const MaskMod either = to_mask(a) | to_mask(b);
  const test::Picture left = pairs_of(a);
  for (std::int64_t h = 0; h < 3; ++h) {
    const test::Picture right = pairs_of(b, h);
    const test::Picture expected = test::drawn(24, 32, [&](std::int64_t q, std::int64_t kv) {
      const auto i = static_cast<std::size_t>(q);
      const auto j = static_cast<std::size_t>(kv);
      return left[i][j] == '#' || right[i][j] == '#';
    });
    EXPECT_EQ(picture(either, {.queries = 24, .keys = 32, .h = h}), expected);
  }
}

TEST(BlockLayout, TheMaskKeepsItsTables) {
  std::mt19937 random(3);
  Options options;
  {
    const BlockLayout layout = random_layout(random, 8, 1);
    options.mask = to_mask(layout);
  }
  const Attention compiled = compile(options);
  options.mask = MaskMod();  // only the compiled function is left
  const Tensor q(DType::f32, {1, 3, 24, 8});
  const Tensor k(DType::f32, {1, 3, 32, 8});
  EXPECT_EQ(compiled.forward({q, k, k}).out.at<float>({0, 0, 0, 0}), 0.0F);
}

TEST(BlockLayout, LongerThanTheLayoutFailsTheCall) {
  Options options;
  options.mask = to_mask(patterns::all_layout(16, {.size = 8}));
  const Tensor x(DType::f32, {1, 1, 24, 8});
  EXPECT_ERROR(attention({x, x, x}, options),
               "mask: c0: index 2 along dimension 2 is outside its length 2, at (b 0, h 0, q 0, kv "
               "16)");
}

TEST(Capture, KeepsATensorThatIsHandedOver) {
  auto tensor = std::make_shared<Tensor>(DType::i32, Dims{2});
  tensor->at<std::int32_t>({1}) = 7;
  const std::weak_ptr<Tensor> watch = tensor;
  {
    Capture capture("ids", std::shared_ptr<const Tensor>(std::move(tensor)));
    const Capture copy = capture;
    capture = Capture("other", 1);
    EXPECT_EQ(copy.view().at<std::int32_t>({1}), 7);
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
  EXPECT_ERROR(Capture("ids", std::shared_ptr<const Tensor>()),
               "capture \"ids\": it received a null pointer instead of a tensor");
}

}  // namespace
}  // namespace treadle
