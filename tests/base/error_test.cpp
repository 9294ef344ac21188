#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace treadle::base {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Error, FailThrowsTheFormattedMessage) {
  const std::string what = "heads";
  try {
    fail("attention: queries have {} {}, keys {}", 12, what, 8);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "attention: queries have 12 heads, keys 8");
    return;
  }
  FAIL() << "no exception";
}

TEST(Error, InternalErrorIsNoErrorOfTheUser) {
  static_assert(!std::is_base_of_v<Error, InternalError>);
  EXPECT_THROW(internal_error("merge: {} parts", 3), InternalError);
}

TEST(Error, InternalErrorNamesItsLine) {
  const int parts = 3;
  int line = 0;
  try {
    line = __LINE__ + 1;
    internal_error("merge: {} parts", parts);
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("merge: 3 parts"));
    EXPECT_THAT(error.what(), HasSubstr("error_test.cpp:" + std::to_string(line)));
  }
}

TEST(Error, InternalErrorDoesNotShowWhereItWasBuilt) {
  const InternalError outside("a", std::source_location());
  EXPECT_THAT(outside.what(), HasSubstr("a bug in Treadle"));
  try {
    internal_error("no numbers");
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("/src/")));
  }
}

}  // namespace
}  // namespace treadle::base
