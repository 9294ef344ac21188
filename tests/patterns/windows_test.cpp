// Windows and blocks of treadle/patterns.h against plain loops.
#include <gtest/gtest.h>

#include <cstdlib>

#include "expect_error.h"
#include "mask_picture.h"
#include "treadle/mods.h"
#include "treadle/patterns.h"

namespace treadle::patterns {
namespace {

using test::drawn;
using test::Picture;
using test::picture;

TEST(Patterns, SlidingWindow) {
  for (const std::int64_t window : {1, 3, 20}) {
    for (const std::int64_t sinks : {0, 1, 4}) {
      EXPECT_EQ(
          picture(sliding_window({.window = window, .sinks = sinks}), {.queries = 12, .keys = 12}),
          drawn(12, 12, [&](std::int64_t q, std::int64_t kv) {
            if (kv > q) return false;
            return kv < sinks || kv > q - window;
          }));
    }
  }
  EXPECT_ERROR(sliding_window({.sinks = 4}),
               "sliding_window: the window is 0; it must be at least 1");
  EXPECT_ERROR(sliding_window({.window = 4, .sinks = -1}),
               "sliding_window: the number of sinks is -1; it must be at least 0");
}

TEST(Patterns, DilatedWindow) {
  for (const std::int64_t window : {1, 2, 4}) {
    for (const std::int64_t dilation : {1, 2, 3}) {
      const auto reachable = [&](std::int64_t q, std::int64_t kv) {
        for (std::int64_t step = 0; step < window; ++step) {
          if (std::abs(q - kv) == step * dilation) return true;
        }
        return false;
      };
      const MaskMod mask = dilated_window({.window = window, .dilation = dilation});
      EXPECT_EQ(picture(mask, {.queries = 13, .keys = 13}), drawn(13, 13, reachable));
      EXPECT_EQ(picture(mask & mods::causal(), {.queries = 13, .keys = 13}),
                drawn(13, 13, [&](auto q, auto kv) { return kv <= q && reachable(q, kv); }));
    }
  }
  EXPECT_ERROR(dilated_window({}), "dilated_window: the window is 0; it must be at least 1");
  EXPECT_ERROR(dilated_window({.window = 2, .dilation = 0}),
               "dilated_window: the dilation is 0; it must be at least 1");
}

TEST(Patterns, Longformer) {
  // Two batches; the first row alone is also tried as an array that all batches share.
  std::vector<std::uint8_t> bytes{1, 0, 0, 0, 0, 0, 1, 0, 0, 0,  //
                                  0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
  const ConstView both(bytes.data(), DType::boolean, {2, 10});
  const ConstView one(bytes.data(), DType::boolean, {10});
  for (const std::int64_t reach : {0, 2}) {
    for (std::int64_t b = 0; b < 2; ++b) {
      const auto expected = [&](std::int64_t batch) {
        const std::uint8_t* global = bytes.data() + 10 * batch;
        return drawn(10, 10, [&](std::int64_t q, std::int64_t kv) {
          if (global[q] != 0 || global[kv] != 0) return true;
          return q - reach <= kv && kv <= q + reach;
        });
      };
      EXPECT_EQ(picture(longformer({.reach = reach, .global = Capture("global", both)}),
                        {.queries = 10, .keys = 10, .b = b}),
                expected(b));
      EXPECT_EQ(picture(longformer({.reach = reach, .global = Capture("global", one)}),
                        {.queries = 10, .keys = 10, .b = b}),
                expected(0));
    }
  }
  const ConstView ints(bytes.data(), DType::u8, {20});
  const ConstView scalar(bytes.data(), DType::boolean, Dims{});
  EXPECT_ERROR(longformer({.reach = 1, .global = Capture("global", ints)}),
               "longformer: global is u8 of shape [20]; it must be bool of shape [length] or "
               "[batch, length]");
  EXPECT_ERROR(longformer({.reach = 1, .global = Capture("global", scalar)}),
               "longformer: global is bool of shape []; it must be bool of shape [length] or "
               "[batch, length]");
  EXPECT_ERROR(longformer({.reach = -1, .global = Capture("global", one)}),
               "longformer: the reach is -1; it must be at least 0");
}

TEST(Patterns, BlockDiagonal) {
  EXPECT_EQ(picture(block_diagonal({.size = 3}), {.queries = 7, .keys = 8}),
            (Picture{"###.....", "###.....", "###.....", "...###..", "...###..", "...###..",
                     "......##"}));
  EXPECT_ERROR(block_diagonal({}), "block_diagonal: the size is 0; it must be at least 1");
}

TEST(Patterns, MergedHeadOfThePaper) {
  // Figure 3b: the latest keys, and every fourth one.
  EXPECT_EQ(picture(local({.window = 4}) | strided({.stride = 4}), {.queries = 10, .keys = 10}),
            drawn(10, 10, [](std::int64_t q, std::int64_t kv) {
              return kv <= q && (q - kv <= 3 || (q - kv) % 4 == 0);
            }));
}

}  // namespace
}  // namespace treadle::patterns
