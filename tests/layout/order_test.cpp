// Tiles: every query once, in the order that was asked for.
#include "layout/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace treadle::layout {
namespace {

// The example of layout/order.h.
TEST(Tiles, OfResidues) {
  const Tiles tiles({.kind = Order::Kind::residue, .modulus = 128}, 4096, 16);
  EXPECT_EQ(tiles.count(), 256);
  EXPECT_EQ(tiles.query(3, 0), 2049);
  EXPECT_EQ(tiles.query(3, 1), 2177);
}

TEST(Tiles, HaveEveryQueryOnce) {
  for (const Order& order :
       {Order{}, Order{.kind = Order::Kind::blocks, .modulus = 7},
        Order{.kind = Order::Kind::residue, .modulus = 5},
        Order{.kind = Order::Kind::rectangle, .modulus = 9, .rows = 2, .columns = 4}}) {
    for (const Range queries : {Range(0), Range(1), Range(50), Range(13, 60)}) {
      const Tiles tiles(order, queries, 8);
      std::vector<std::int64_t> seen;
      for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
        EXPECT_LE(tiles.size(tile), 8);
        for (std::int64_t i = 0; i < tiles.size(tile); ++i) seen.push_back(tiles.query(tile, i));
      }
      std::ranges::sort(seen);
      ASSERT_EQ(static_cast<std::int64_t>(seen.size()), queries.count()) << to_text(order);
      for (std::size_t i = 0; i < seen.size(); ++i)
        EXPECT_EQ(seen[i], queries.begin + static_cast<std::int64_t>(i)) << to_text(order);
    }
  }
}

}  // namespace
}  // namespace treadle::layout
