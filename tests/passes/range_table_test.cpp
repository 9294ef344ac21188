// Smallest and largest elements of stretches, whatever bytes they are read from.
#include "passes/range_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace treadle::passes {
namespace {

// Another language may store a boolean as any byte.
TEST(RangeTable, OfBooleansFromAnyBytes) {
  constexpr std::array<std::uint8_t, 6> bytes{255, 2, 128, 0, 0, 1};
  for (const std::int64_t stride : {1, 2}) {
    const RangeTable table(ConstView(bytes.data(), DType::boolean, {6 / stride}, {stride}));
    const IntegerRange first = table.integers(0, 0);
    EXPECT_EQ(first.low, 1) << "stride " << stride;
    EXPECT_EQ(first.high, 1) << "stride " << stride;
    const IntegerRange all = table.integers(0, 6 / stride - 1);
    EXPECT_EQ(all.low, 0) << "stride " << stride;
    EXPECT_EQ(all.high, 1) << "stride " << stride;
  }
  const RangeTable table(ConstView(bytes.data(), DType::boolean, {6}, {1}));
  EXPECT_EQ(table.integers(0, 2).low, 1);
  EXPECT_EQ(table.integers(0, 2).high, 1);
  EXPECT_EQ(table.integers(3, 4).high, 0);
}

}  // namespace
}  // namespace treadle::passes
