// BigBird: what every row must see, and that the random blocks are the same for the same seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "expect_error.h"
#include "mask_picture.h"
#include "treadle/patterns.h"

namespace treadle::patterns {
namespace {

using test::Picture;
using test::picture;

// One character per block; a block that is not all seen or all hidden fails the test.
Picture block_picture(const BigBird& pattern, std::int64_t head) {
  const std::int64_t size = pattern.block_size;
  const Picture pairs =
      picture(bigbird(pattern), {.queries = pattern.length, .keys = pattern.length, .h = head});
  return test::drawn(
      pattern.length / size, pattern.length / size, [&](std::int64_t query, std::int64_t key) {
        std::int64_t seen = 0;
        for (std::int64_t i = 0; i < size; ++i) {
          const std::string row = pairs[static_cast<std::size_t>(query * size + i)];
          const std::string part =
              row.substr(static_cast<std::size_t>(key * size), static_cast<std::size_t>(size));
          seen += std::count(part.begin(), part.end(), '#');
        }
        EXPECT_TRUE(seen == 0 || seen == size * size);
        return seen != 0;
      });
}

TEST(BigBird, EveryRowSeesItsBlocks) {
  for (const std::int64_t random : {0, 1, 3, 20}) {
    for (const std::int64_t global : {0, 1, 3, 20}) {
      for (const std::int64_t reach : {0, 1, 20}) {
        const BigBird pattern{.length = 24,
                              .heads = 2,
                              .block_size = 2,
                              .reach = reach,
                              .global = global,
                              .random = random,
                              .seed = 7};
        for (std::int64_t head = 0; head < 2; ++head) {
          const Picture blocks = block_picture(pattern, head);
          for (std::int64_t query = 0; query < 12; ++query) {
            const std::string& row = blocks[static_cast<std::size_t>(query)];
            std::int64_t always = 0;
            for (std::int64_t key = 0; key < 12; ++key) {
              const bool must = std::abs(query - key) <= reach || query < global || key < global;
              always += must ? 1 : 0;
              if (must) {
                EXPECT_EQ(row[static_cast<std::size_t>(key)], '#') << query << " " << key;
              }
            }
            EXPECT_EQ(std::count(row.begin(), row.end(), '#'),
                      std::min<std::int64_t>(12, always + random));
          }
        }
      }
    }
  }
}

TEST(BigBird, TheSeedDecides) {
  BigBird pattern{.length = 16, .heads = 2, .block_size = 1, .random = 2, .seed = 1};
  const Picture first = block_picture(pattern, 0);
  EXPECT_EQ(block_picture(pattern, 0), first);
  EXPECT_NE(block_picture(pattern, 1), first);
  pattern.seed = 2;
  EXPECT_NE(block_picture(pattern, 0), first);
}

// Every block that may be chosen is chosen about as often as any other.
TEST(BigBird, RandomBlocksAreSpread) {
  constexpr std::int64_t heads = 600;
  const BigBird pattern{.length = 13, .heads = heads, .block_size = 1, .random = 3, .seed = 3};
  const test::Traced traced = test::traced_mask(bigbird(pattern));
  std::vector<int> chosen(13);
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::string row = picture(traced, {.queries = 7, .keys = 13, .h = head}).back();
    for (std::size_t key = 0; key < 13; ++key) chosen[key] += row[key] == '#' ? 1 : 0;
  }
  // Row 6 always sees 0, 5, 6 and 7 and chooses 3 of the other 9: 200 of 600 each, standard
  // deviation 12.
  for (const std::size_t key : {0, 5, 6, 7}) EXPECT_EQ(chosen[key], heads);
  for (const std::size_t key : {1, 2, 3, 4, 8, 9, 10, 11, 12}) {
    EXPECT_GT(chosen[key], 140);
    EXPECT_LT(chosen[key], 260);
  }
}

TEST(BigBird, Errors) {
  EXPECT_ERROR(bigbird({.length = 100}),
               "bigbird: the length is 100, the block size 64; 100 is not a multiple of 64");
  EXPECT_ERROR(bigbird({.block_size = 0}), "bigbird: the block size is 0; it must be at least 1");
  EXPECT_ERROR(bigbird({.length = -64}), "bigbird: the length is -64; it must be at least 0");
  EXPECT_ERROR(bigbird({.heads = 0}), "bigbird: the number of heads is 0; it must be at least 1");
  EXPECT_ERROR(bigbird({.reach = -1}), "bigbird: the reach is -1; it must be at least 0");
  EXPECT_ERROR(bigbird({.global = -1}),
               "bigbird: the number of global blocks is -1; it must be at least 0");
  EXPECT_ERROR(bigbird({.random = -1}),
               "bigbird: the number of random blocks is -1; it must be at least 0");
}

}  // namespace
}  // namespace treadle::patterns
