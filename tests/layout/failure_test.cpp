// The first pair at which a mask fails, whatever the tiles and threads.
#include "layout/failure.h"

#include <gtest/gtest.h>

#include "ir/parse.h"
#include "treadle/tensor.h"

namespace treadle::layout {
namespace {

Mask mask_reading(std::string_view text, const std::string& name, const Tensor& capture) {
  const std::vector<ir::Slot> slots{{name, capture.dtype(), ConstView(capture).rank()}};
  return {ir::parse(text, slots), {capture}};
}

Layout layout_of(const Mask& mask, const Extent& extent, const Tiles& tiles) {
  return build(mask, extent, tiles, *serial_executor());
}

TEST(FindFailure, IsTheLowestQueryOfTheFirstTile) {
  const Tensor ids(DType::i32, {9});
  const Mask mask = mask_reading("ids[q // 2] == ids[(kv + h) % 12]", "ids", ids);
  const Extent extent{.batch = 2, .heads = 3, .queries = 40, .keys = 10};
  for (const int threads : {1, 3}) {
    const auto executor = tbb_executor(threads);
    const auto found = find_failure(mask, layout_of(mask, extent, Tiles({}, 40, 16)), *executor);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->h, 0);
    EXPECT_EQ(found->q, 0);
    EXPECT_EQ(found->kv, 9);
    EXPECT_EQ(found->reason, "ids: index 9 along dimension 0 is outside its length 9");
    // Queries 18 and up read outside; tile 0 has those that 3 divides.
    const Mask by_query = mask_reading("ids[q // 2] == 0", "ids", ids);
    const Tiles thirds({.kind = Order::Kind::residue, .modulus = 3}, 40, 32);
    const auto first = find_failure(by_query, layout_of(by_query, extent, thirds), *executor);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->q, 18);
    EXPECT_EQ(first->kv, 0);
  }
}

TEST(FindFailure, FindsNoneInMasksThatAreSure) {
  const Tensor ids(DType::i32, {9});
  for (const char* text :
       {"q >= kv && ids[min(q, 8)] == 0", "q < 9 && ids[min(q, 8)] == 0", "q < 9 && ids[q] == 0"}) {
    const Mask mask = mask_reading(text, "ids", ids);
    const Layout layout = layout_of(mask, {.queries = 40, .keys = 10}, Tiles({}, 40, 16));
    EXPECT_FALSE(find_failure(mask, layout, *serial_executor())) << text;
  }
}

TEST(FindFailure, KnowsTheBatchAndHead) {
  const Tensor ends(DType::i32, {2, 3});
  const Mask mask = mask_reading("kv <= ends[b, h]", "ends", ends);
  const Extent extent{.batch = 2, .heads = 4, .queries = 5, .keys = 5};
  const auto found =
      find_failure(mask, layout_of(mask, extent, Tiles({}, 5, 2)), *serial_executor());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->b, 0);
  EXPECT_EQ(found->h, 3);
}

}  // namespace
}  // namespace treadle::layout
