#include "base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "environment.h"

namespace treadle::base {
namespace {

TEST(Variables, KeepWhatWasFoundFirst) {
  const test::Environment given("TREADLE_TEST_VARIABLE", "first");
  EXPECT_EQ(variable("TREADLE_TEST_VARIABLE"), "first");
  setenv("TREADLE_TEST_VARIABLE", "second", 1);
  EXPECT_EQ(variable("TREADLE_TEST_VARIABLE"), "first");
  const std::uint64_t reading = reading_of_variables();
  forget_variables();
  EXPECT_NE(reading_of_variables(), reading);
  EXPECT_EQ(variable("TREADLE_TEST_VARIABLE"), "second");
}

TEST(Variables, EmptyIsNotAbsent) {
  const test::Environment empty("TREADLE_TEST_VARIABLE", "");
  EXPECT_EQ(variable("TREADLE_TEST_VARIABLE"), "");
  const test::Environment none("TREADLE_TEST_VARIABLE", nullptr);
  EXPECT_EQ(variable("TREADLE_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace treadle::base
