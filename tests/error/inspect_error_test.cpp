// The complete messages of src/api/inspect.h.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/inspect.h"
#include "expect_error.h"
#include "treadle/tensor.h"

namespace treadle::api {
namespace {

using test::expect_error;

class InspectErrors : public testing::Test {
 protected:
  Tensor pairs{DType::boolean, {1, 1, 2, 5}};
  Tensor kinds{DType::u8, {1, 1, 2, 5}};
  std::vector<float> table = std::vector<float>(4);
  std::vector<Capture> captures{{"table", View(table.data(), {4})}};

  void expect_refused(const BlockGrid& grid, const std::string& message) {
    expect_error([&] { block_kinds("q >= kv", {}, grid, kinds, *serial_executor()); }, message);
  }
};

TEST_F(InspectErrors, ResultOfAnotherType) {
  expect_error([&] { visible_pairs("q >= kv", {}, kinds); },
               "visible_pairs: the result is u8 with shape [1, 1, 2, 5]; it must be bool and have "
               "4 axes");
  Tensor flat(DType::boolean, {2, 5});
  expect_error([&] { unmasked_pairs("score", {}, flat); },
               "unmasked_pairs: the result is bool with shape [2, 5]; it must be bool and have 4 "
               "axes");
}

TEST_F(InspectErrors, ScoreModThatReturnsNoFloat) {
  expect_error([&] { unmasked_pairs("q - kv", {}, pairs); },
               "unmasked_pairs: the score mod returns int; it must return a float");
}

TEST_F(InspectErrors, MaskThatReturnsNoBool) {
  expect_error([&] { visible_pairs("q - kv", {}, pairs); },
               "layout: the mask returns int; a mask returns one bool");
}

TEST_F(InspectErrors, ReadOutside) {
  expect_error(
      [&] { visible_pairs("table[kv] > 0.0", captures, pairs); },
      "mask: table: index 4 along dimension 0 is outside its length 4, at (b 0, h 0, q 0, kv 4)");
  EXPECT_THROW(visible_pairs("table[kv] > 0.0", captures, pairs), ModError);
}

TEST_F(InspectErrors, Grids) {
  expect_refused({.queries = 4, .keys = 5, .query_block = 0, .key_block = 1},
                 "block_kinds: blocks of 0 queries and 1 keys; both must be positive");
  expect_refused({.queries = 4, .keys = 5, .query_block = 2, .key_block = 2},
                 "block_kinds: the result has shape [1, 1, 2, 5]; the grid has 2 rows and 3 "
                 "columns");
}

}  // namespace
}  // namespace treadle::api
