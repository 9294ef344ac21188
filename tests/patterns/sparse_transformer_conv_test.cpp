// Convolution-shaped attention: worked examples, and masks and layouts against the original's
// loops.
#include <gtest/gtest.h>

#include <set>

#include "mask_picture.h"
#include "treadle/sparse_transformer.h"

namespace treadle::patterns {
namespace {

using test::blocks_of;
using test::inside_block;
using test::Picture;
using test::picture;

TEST(Conv, OneDimension) {
  const BlockLayout layout = conv_layout({.width = 16, .filter_width = 5}, {.size = 8});
  EXPECT_EQ(blocks_of(layout), (Picture{"#.", "##"}));
  EXPECT_EQ(inside_block(layout, 1, 0), (Picture{"......##", ".......#", "........", "........",
                                                 "........", "........", "........", "........"}));
  const Picture diagonal{"#.......", "##......", "###.....", ".###....",
                         "..###...", "...###..", "....###.", ".....###"};
  EXPECT_EQ(inside_block(layout, 0, 0), diagonal);
  EXPECT_EQ(inside_block(layout, 1, 1), diagonal);
}

TEST(Conv, OneDimensionStrideTwo) {
  const BlockLayout layout =
      conv_layout({.width = 16, .filter_width = 4, .stride = 2}, {.size = 8});
  EXPECT_EQ(layout.query_blocks, 1);
  EXPECT_EQ(layout.key_blocks, 2);
  EXPECT_EQ(blocks_of(layout), Picture{"##"});
  const Picture block = inside_block(layout, 0, 0);
  EXPECT_EQ(Picture(block.begin(), block.begin() + 5),
            (Picture{"#.......", ".##.....", "...##...", ".....##.", ".......#"}));
}

TEST(Conv, DeconvOneDimensionStrideTwo) {
  const BlockLayout layout =
      deconv_layout({.width = 16, .filter_width = 4, .stride = 2}, {.size = 8});
  EXPECT_EQ(blocks_of(layout), (Picture{"#", "#"}));
}

TEST(Conv, TwoDimensions) {
  const BlockLayout layout =
      conv_layout({.height = 4, .width = 4, .filter_height = 3, .filter_width = 3}, {.size = 8});
  EXPECT_EQ(blocks_of(layout), (Picture{"#.", "##"}));
  EXPECT_EQ(inside_block(layout, 0, 0)[5], "###.##..");
}

TEST(Conv, FilterHeightCountsAsOneInASingleRow) {
  const Conv flat{.width = 16, .filter_height = 4, .filter_width = 5};
  EXPECT_EQ(picture(conv(flat), {.queries = 16, .keys = 16}),
            picture(conv({.width = 16, .filter_width = 5}), {.queries = 16, .keys = 16}));
}

TEST(Conv, GraphsOfMasks) {
  EXPECT_EQ(
      test::traced_mask(conv({.width = 16, .filter_width = 5, .autoregressive = false})).text(),
      "t0 = kv - q * 1 + 2;\nt0 >= 0 && t0 < 5");
}

// The pairs, collected as the original does: for each pixel that asks or answers, the pixels under
// its filter.
using Pairs = std::set<std::pair<std::int64_t, std::int64_t>>;

std::int64_t least_padding(std::int64_t length, std::int64_t filter, std::int64_t stride) {
  for (std::int64_t pad = 0; pad < filter; ++pad) {
    const std::int64_t room = length - filter + 1 + 2 * pad;
    if (room > 0 && (room + stride - 1) / stride == length / stride) return pad;
  }
  return -1;
}

Pairs small_to_large(const Conv& c, bool small_asks) {
  const bool flat = c.height == 1;
  const std::int64_t rows = flat ? 1 : c.height / c.stride;
  const std::int64_t columns = c.width / c.stride;
  const std::int64_t filter_rows = flat ? 1 : c.filter_height;
  const std::int64_t pad_rows = flat ? 0 : least_padding(c.height, c.filter_height, c.stride);
  const std::int64_t pad_columns = least_padding(c.width, c.filter_width, c.stride);
  Pairs pairs;
  for (std::int64_t p = 0; p < rows; ++p) {
    for (std::int64_t r = 0; r < columns; ++r) {
      for (std::int64_t i = 0; i < filter_rows; ++i) {
        for (std::int64_t j = 0; j < c.filter_width; ++j) {
          const std::int64_t y = p * c.stride - pad_rows + i;
          const std::int64_t x = r * c.stride - pad_columns + j;
          if (y < 0 || y >= c.height || x < 0 || x >= c.width) continue;
          const std::int64_t large = y * c.width + x;
          const std::int64_t place = p * c.stride * c.width + r * c.stride;
          const bool in_time = small_asks ? large <= place : place <= large;
          if (c.autoregressive && !in_time) continue;
          pairs.insert({p * columns + r, large});
        }
      }
    }
  }
  return pairs;
}

TEST(Conv, MasksAndLayoutsAgreeWithTheLoops) {
  int tried = 0;
  for (const std::int64_t height : {1, 4, 6}) {
    for (const std::int64_t width : {4, 12}) {
      for (const std::int64_t filter : {1, 2, 3, 4, 5, 9}) {
        for (const std::int64_t stride : {1, 2, 4}) {
          if (height % stride != 0 && height != 1) continue;
          if (filter % 2 == 0 && stride == 1) continue;
          for (const bool autoregressive : {true, false}) {
            const Conv c{.height = height,
                         .width = width,
                         .filter_height = std::max<std::int64_t>(filter - 2, stride > 1 ? 2 : 1),
                         .filter_width = filter,
                         .stride = stride,
                         .autoregressive = autoregressive};
            const std::int64_t large = height * width;
            const std::int64_t small = (height == 1 ? 1 : height / stride) * (width / stride);
            const Pairs down = small_to_large(c, true);
            const Pairs up = small_to_large(c, false);
            const Picture conv_pairs =
                test::drawn(small, large, [&](auto q, auto kv) { return down.contains({q, kv}); });
            const Picture deconv_pairs =
                test::drawn(large, small, [&](auto q, auto kv) { return up.contains({kv, q}); });
            EXPECT_EQ(picture(conv(c), {.queries = small, .keys = large}), conv_pairs);
            EXPECT_EQ(picture(deconv(c), {.queries = large, .keys = small}), deconv_pairs);
            for (const std::int64_t size : {1, 2, 4}) {
              if (small % size != 0 || large % size != 0) continue;
              EXPECT_EQ(test::pairs_of(conv_layout(c, {.size = size})), conv_pairs);
              EXPECT_EQ(test::pairs_of(deconv_layout(c, {.size = size})), deconv_pairs);
            }
            ++tried;
          }
        }
      }
    }
  }
  EXPECT_GT(tried, 100);
}

}  // namespace
}  // namespace treadle::patterns
