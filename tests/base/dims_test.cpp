// Dims behave like a vector of integers, few or many.
#include "treadle/dims.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace treadle {
namespace {

TEST(DimsTest, GrowAndShrinkLikeAVector) {
  Dims dims;
  std::vector<std::int64_t> expected;
  const auto expect_equal = [&] {
    ASSERT_EQ(std::vector<std::int64_t>(dims.begin(), dims.end()), expected);
    ASSERT_EQ(dims, Dims(expected));
  };
  for (std::int64_t i = 0; i < 12; ++i) {
    dims.push_back(i + 1);
    expected.push_back(i + 1);
    expect_equal();
    Dims copy = dims;
    copy.back() = 77;
    expect_equal();
    EXPECT_NE(copy, dims);
  }
  for (const std::size_t size : {9u, 6u, 3u, 8u, 5u, 7u, 0u, 2u}) {
    dims.resize(size);
    expected.resize(size);
    expect_equal();
  }
  while (!dims.empty()) {
    dims.pop_back();
    expected.pop_back();
    expect_equal();
  }
}

TEST(DimsTest, StayWhatTheyWereWhenMovedFrom) {
  for (const std::size_t size : {3u, 9u}) {
    Dims from(size, 7);
    const Dims to = std::move(from);
    EXPECT_EQ(to, Dims(size, 7));
    EXPECT_EQ(from, to);  // NOLINT(bugprone-use-after-move)
  }
}

TEST(DimsTest, CompareByTheirFirstDifference) {
  EXPECT_LT(Dims({1, 2}), Dims({1, 3}));
  EXPECT_LT(Dims({1, 2}), Dims({1, 2, 0}));
  EXPECT_EQ(Dims(3, 7), Dims({7, 7, 7}));
  EXPECT_THROW((void)Dims({1, 2}).at(2), std::out_of_range);
}

}  // namespace
}  // namespace treadle
