// Flags are what a std::vector<bool> would be, also where they need memory of their own.
#include "plan/flags.h"

#include <gtest/gtest.h>

#include <vector>

namespace treadle::plan {
namespace {

TEST(Flags, AreAsManyAsWereAdded) {
  for (const std::size_t count : {0, 1, 63, 64, 65, 128, 129, 300}) {
    std::vector<bool> expected;
    for (std::size_t i = 0; i < count; ++i) expected.push_back(i % 3 == 0 || i % 7 == 2);
    Flags flags(expected);
    ASSERT_EQ(flags.size(), count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(flags[i], expected[i]) << i;
    Flags copy = flags;
    EXPECT_EQ(copy, flags);
    if (count == 0) continue;
    copy.set(count - 1, !expected.back());
    EXPECT_NE(copy, flags);
    copy.set(count - 1, expected.back());
    EXPECT_EQ(copy, flags);
    copy.push_back(false);
    EXPECT_NE(copy, flags);
  }
  EXPECT_EQ((Flags{true, false}), Flags(std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace treadle::plan
