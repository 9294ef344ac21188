// Mods given as text: simplified, evaluated by pair and by block; and the table of operations.
#include "api/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ir/op.h"
#include "treadle/attention.h"
#include "treadle/error.h"
#include "treadle/tensor.h"

namespace treadle::api {
namespace {

using testing::ElementsAre;

TEST(Inspect, OperationsAreThoseOfTheTable) {
  const std::vector<Operation> rows = operations();
  std::size_t named = 0;
  for (const ir::OpInfo& info : ir::op_table()) {
    if (info.text.empty()) continue;
    ASSERT_LT(named, rows.size());
    const Operation& row = rows[named++];
    EXPECT_EQ(row.name, info.text);
    EXPECT_EQ(row.infix, info.infix);
    EXPECT_EQ(row.arity, info.arity);
  }
  EXPECT_EQ(named, rows.size());
  const auto rule_of = [&](std::string_view name) {
    return std::ranges::find(rows, name, &Operation::name)->rule;
  };
  EXPECT_EQ(rule_of("add"), "arithmetic");
  EXPECT_EQ(rule_of("tanh"), "real");
  EXPECT_EQ(rule_of("where"), "choice");
}

TEST(Inspect, SimplifiedText) {
  std::vector<float> slopes(4);
  const std::vector<Capture> captures{{"slopes", View(slopes.data(), {4})}};
  EXPECT_EQ(simplified("t = score * 1.0; t + slopes[h] * (kv - q)", captures),
            "score + slopes[h] * float(kv - q)");
  EXPECT_EQ(simplified("q >= kv && true", {}), "q >= kv");
}

TEST(Inspect, CapturesThatAModReads) {
  const std::vector<Capture> captures{{"a", 1.0}, {"b1", 2.0}, {"unused", 3.0}};
  EXPECT_THAT(captures_read("t = unused * 2.0; score * b1 + a", captures), ElementsAre("b1", "a"));
  EXPECT_THAT(captures_read("score", captures), ElementsAre());
}

TEST(Inspect, VisiblePairs) {
  std::vector<std::int32_t> shift{0, 2};
  const std::vector<Capture> captures{{"shift", View(shift.data(), {2})}};
  Tensor shown(DType::boolean, {1, 2, 3, 4});
  visible_pairs("q + shift[h] >= kv", captures, shown);
  for (int h = 0; h < 2; ++h) {
    for (int q = 0; q < 3; ++q) {
      for (int kv = 0; kv < 4; ++kv)
        EXPECT_EQ(shown.at<bool>({0, h, q, kv}), q + 2 * h >= kv) << h << q << kv;
    }
  }
}

TEST(Inspect, ResultsMayHaveAnyStrides) {
  std::vector<std::uint8_t> memory(2 * 3 * 4, 9);
  auto* data = reinterpret_cast<bool*>(memory.data());
  visible_pairs("q >= kv", {}, View(data, {1, 1, 3, 4}, {24, 24, 2, 6}));  // a transpose, with room
  EXPECT_THAT(memory, ElementsAre(1, 9, 1, 9, 1, 9, 0, 9, 1, 9, 1, 9,      //
                                  0, 9, 0, 9, 1, 9, 0, 9, 0, 9, 0, 9));

  std::vector<std::uint8_t> kinds(8, 9);
  block_kinds("q >= kv", {}, {.queries = 4, .keys = 4, .query_block = 2, .key_block = 2},
              View(kinds.data(), {1, 1, 2, 2}, {8, 8, 2, 4}), *serial_executor());
  EXPECT_THAT(kinds, ElementsAre(1, 9, 2, 9, 0, 9, 1, 9));
}

TEST(Inspect, PairsThatAScoreModDoesNotMask) {
  Tensor shown(DType::boolean, {1, 1, 2, 2});
  unmasked_pairs("where(q >= kv, score - 1e30, -inf)", {}, shown);
  EXPECT_TRUE(shown.at<bool>({0, 0, 0, 0}));
  EXPECT_FALSE(shown.at<bool>({0, 0, 0, 1}));
  EXPECT_TRUE(shown.at<bool>({0, 0, 1, 1}));
}

TEST(Inspect, BlockKindsAgreeWithPairs) {
  std::vector<std::int32_t> document(23);
  for (int i = 0; i < 23; ++i) document[static_cast<std::size_t>(i)] = i / 5;
  const std::vector<Capture> captures{{"document", View(document.data(), {23})}};
  for (const std::string mask : {"document[q] == document[kv]", "q >= kv", "q - kv < h", "true"}) {
    Tensor pairs(DType::boolean, {1, 2, 20, 23}), kinds(DType::u8, {1, 2, 5, 4});
    visible_pairs(mask, captures, pairs);
    const BlockGrid grid{.queries = 20, .keys = 23, .query_block = 4, .key_block = 6};
    block_kinds(mask, captures, grid, kinds, *serial_executor());
    for (int h = 0; h < 2; ++h) {
      for (int row = 0; row < 5; ++row) {
        for (int column = 0; column < 4; ++column) {
          int seen = 0;
          for (int q = row * 4; q < row * 4 + 4; ++q) {
            for (int kv = column * 6; kv < std::min(column * 6 + 6, 23); ++kv)
              seen += pairs.at<bool>({0, h, q, kv}) ? 1 : 0;
          }
          // The last column sticks out, so it is never full.
          EXPECT_EQ(kinds.at<std::uint8_t>({0, h, row, column}), seen == 0   ? 0
                                                                 : seen < 24 ? 1
                                                                             : 2)
              << mask << " " << h << " " << row << " " << column;
        }
      }
    }
  }
}

TEST(Inspect, CountsKernels) {
  Tensor x(DType::f32, {1, 1, 8, 8});
  // A text that no other test compiles.
  const Attention odd = compile({.score_mod = parse("score * 0.8125 - tanh(score) * 0.4375")});
  const std::int64_t before = kernels_made();
  (void)odd.forward({x, x, x});
  const std::int64_t after = kernels_made();
  EXPECT_GT(after, before);
  (void)odd.forward({x, x, x});
  EXPECT_EQ(kernels_made(), after);
}

TEST(Inspect, NamesTheTarget) { EXPECT_FALSE(target_name().empty()); }

}  // namespace
}  // namespace treadle::api
