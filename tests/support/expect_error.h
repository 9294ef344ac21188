// The complete message of a treadle::Error.
//
//   EXPECT_ERROR(compile(options), "compile: the scale is inf; it must be finite");
//   expect_error([&] { several(); statements(); }, "...");
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "treadle/error.h"

namespace treadle::test {

template <class F>
void expect_error(F&& f, const std::string& message) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), message);
    return;
  }
  ADD_FAILURE() << "no error; expected: " << message;
}

}  // namespace treadle::test

#define EXPECT_ERROR(expression, message) \
  ::treadle::test::expect_error([&] { (void)(expression); }, message)
