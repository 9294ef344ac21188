// Smallest and largest elements of stretches, whatever bytes they are read from.
#include "passes/range_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

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

// In the memory of a longer array.
TEST(RangeTable, IsBuiltAnew) {
  std::vector<std::int32_t> data(5000, 7);
  RangeTable table(ConstView(data.data(), {5000}));
  for (const std::int64_t length : {300, 5000, 1, 2000}) {
    for (std::int64_t i = 0; i < length; ++i)
      data[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i - length);
    table.build(ConstView(data.data(), {length}));
    EXPECT_EQ(table.length(), length);
    EXPECT_EQ(table.integers(0, length - 1).low, -length);
    EXPECT_EQ(table.integers(0, length - 1).high, -1);
  }
}

// A table is as long as it was asked for; one that is too short stays as it is.
TEST(CaptureTables, AreAsLongAsNeeded) {
  std::vector<std::int64_t> data(3000);
  std::iota(data.begin(), data.end(), 0);
  const ConstView view(data.data(), {3000});
  CaptureTables tables(std::vector<ConstView>{view});
  const RangeTable& first = tables.along({0, 0, 0}, 999);
  EXPECT_EQ(first.length(), 1000);
  EXPECT_EQ(&tables.along({0, 0, 0}, 500), &first);
  const RangeTable& whole = tables.along({0, 0, 0}, 1000);
  EXPECT_EQ(whole.length(), 3000);
  EXPECT_EQ(first.length(), 1000);
  EXPECT_EQ(whole.integers(0, 2999).high, 2999);
  data[10] = 5000;
  tables.bind({view});
  EXPECT_EQ(tables.along({0, 0, 0}, 1500).length(), 1501);
  EXPECT_EQ(tables.along({0, 0, 0}, 1500).integers(0, 1500).high, 5000);
}

}  // namespace
}  // namespace treadle::passes
