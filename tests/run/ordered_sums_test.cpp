#include "run/ordered_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "fuzz.h"

namespace treadle::run {
namespace {

// Sums of floats of very different sizes show in which order they were added.
TEST(OrderedSums, AddsInTheOrderOfChunks) {
  constexpr int chunks = 7;
  std::vector<float> parts(chunks);
  for (int c = 0; c < chunks; ++c)
    parts[static_cast<std::size_t>(c)] = std::ldexp(1.3F, 5 * c) * (c % 2 == 0 ? 1 : -1);
  float expected = 0;
  for (const float part : parts) expected += part;
  for (int round = 0; round < test::fuzz_count(1000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    std::vector<int> order(chunks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    float sums[2];
    OrderedSums<float> over(sums, 2, 1, chunks);
    const float* sum = nullptr;
    for (const int c : order) {
      ASSERT_EQ(sum, nullptr);
      sum = over.deliver(1, c, &parts[static_cast<std::size_t>(c)]);
    }
    ASSERT_NE(sum, nullptr);
    EXPECT_EQ(*sum, expected);
  }
}

TEST(OrderedSums, PartsMayBeMissing) {
  const float part = 3;
  float sums[2];
  OrderedSums<float> some(sums, 1, 1, 3);
  EXPECT_EQ(some.deliver(0, 2, nullptr), nullptr);
  EXPECT_EQ(some.deliver(0, 0, nullptr), nullptr);
  EXPECT_EQ(*some.deliver(0, 1, &part), 3);
  OrderedSums<float> none(sums, 1, 2, 1);
  const float* zeros = none.deliver(0, 0, nullptr);
  EXPECT_EQ(zeros[0], 0);
  EXPECT_EQ(zeros[1], 0);
}

// Of a call that failed parts are missing for ever: nobody waits for them, and nothing leaks.
TEST(OrderedSums, MayBeLeftUnfinished) {
  const float part = 3;
  float sums[1];
  OrderedSums<float> over(sums, 1, 1, 5);
  EXPECT_EQ(over.deliver(0, 4, &part), nullptr);
  EXPECT_EQ(over.deliver(0, 2, nullptr), nullptr);
  over.give_up();
  EXPECT_EQ(over.deliver(0, 3, &part), nullptr);
}

}  // namespace
}  // namespace treadle::run
