// Which calls decode.
#include "plan/decode_kernel.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace treadle::plan {
namespace {

using layout::Layout;
using Keys = layout::Run;
using layout::Tiles;

bool decodes_with(std::int64_t queries, std::int64_t group, std::vector<Keys> runs) {
  const Target target = find_target("haswell");  // eight lanes
  return decodes(
      target, DType::f32,
      Layout({1, 8, queries, 4096}, Tiles({}, queries, 24), false, false, {std::move(runs)}),
      group);
}

TEST(DecodeRule, FewQueriesAndFewRows) {
  const std::vector<Keys> all{{0, 4096, true}};
  EXPECT_TRUE(decodes_with(1, 1, all));
  EXPECT_TRUE(decodes_with(8, 8, all));
  EXPECT_FALSE(decodes_with(9, 1, all)) << "more queries than lanes";
  EXPECT_FALSE(decodes_with(8, 9, all)) << "more than 64 rows";
}

TEST(DecodeRule, KeysInLongPieces) {
  EXPECT_TRUE(decodes_with(1, 1, {})) << "no keys at all";
  EXPECT_TRUE(decodes_with(1, 1, {{3, 5, true}})) << "a cache that has just begun";
  EXPECT_TRUE(decodes_with(1, 1, {{0, 4, true}, {3000, 4096, true}})) << "first keys and a window";
  EXPECT_TRUE(decodes_with(1, 1, {Keys::stepped({0, 64, 128, 32}, true)})) << "blocks";
  EXPECT_FALSE(decodes_with(1, 1, {Keys::stepped({0, 1, 128, 32}, true)})) << "strided";
  std::vector<Keys> chosen;
  for (std::int64_t key = 0; key < 4096; key += 7 + key % 3)
    chosen.emplace_back(key, key + 1, true);
  EXPECT_FALSE(decodes_with(1, 1, chosen)) << "keys chosen one by one";
}

TEST(DecodeRule, HeadsOfAGroupSeeTheSame) {
  const std::vector<std::vector<Keys>> runs(8, {{0, 4096, true}});
  const Layout per_head({1, 8, 1, 4096}, Tiles({}, 1, 24), false, true, runs);
  EXPECT_TRUE(decodes(find_target("haswell"), DType::f32, per_head, 1));
  EXPECT_FALSE(decodes(find_target("haswell"), DType::f32, per_head, 2));
}

// Every number of rows is one of seven kinds of kernels.
TEST(DecodeRule, KindsOfRows) {
  std::set<std::tuple<bool, bool, int>> kinds;
  for (std::int64_t rows = 1; rows <= 64; ++rows) {
    const RowBlocks blocks(rows);
    EXPECT_EQ(blocks.fours ? (rows - blocks.rest) % 4 : rows - blocks.rest, 0);
    EXPECT_LE(blocks.rest, 4);
    EXPECT_TRUE(blocks.fours || !blocks.many);
    kinds.emplace(blocks.fours, blocks.many, blocks.rest);
  }
  EXPECT_EQ(kinds.size(), 12u);  // 1 to 4 rows; fours, or many of them, and 0 to 3
}

}  // namespace
}  // namespace treadle::plan
