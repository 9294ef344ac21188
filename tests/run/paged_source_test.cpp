// Rows of keys in pages, found through a table that nobody may trust.
#include "run/paged_source.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "treadle/tensor.h"

namespace treadle::run {
namespace {

struct Pool {
  Tensor k{DType::f32, {3, 2, 4, 8}}, v{DType::f32, {3, 2, 4, 5}};
  ConstView keys = k, values = v;
  std::vector<std::int32_t> table{2, 0, 1};

  [[nodiscard]] PagedSource source(layout::Range positions, std::int64_t first = 0) const {
    return {{keys}, {values}, {.table = table.data(), .page_size = 4, .first = first}, positions};
  }
};

TEST(PagedSources, RowsOfAPage) {
  const Pool pool;
  const PagedSource source = pool.source({0, 10});
  const KeyRows rows = source.rows(0, 1, 6);
  EXPECT_EQ(rows.begin, 4);
  EXPECT_EQ(rows.end, 8);
  EXPECT_EQ(rows.key(6), reinterpret_cast<const std::byte*>(&pool.keys.at<float>({0, 1, 2, 0})));
  EXPECT_EQ(rows.value(7),
            reinterpret_cast<const std::byte*>(&pool.values.at<float>({0, 1, 3, 0})));
  EXPECT_EQ(source.rows(0, 0, 9).end, 10) << "the last page is not full";
}

TEST(PagedSources, PositionsThatBeginElsewhere) {
  const Pool pool;
  const KeyRows rows = pool.source({100, 110}, 98).rows(0, 0, 103);
  EXPECT_EQ(rows.begin, 102);
  EXPECT_EQ(rows.key(103), reinterpret_cast<const std::byte*>(&pool.keys.at<float>({0, 0, 1, 0})));
}

// A table may change after it was checked.
TEST(PagedSources, StayInsideThePool) {
  Pool pool;
  const auto* begin = static_cast<const std::byte*>(pool.keys.data());
  const auto* end = begin + pool.k.count() * static_cast<std::int64_t>(sizeof(float));
  for (const std::int32_t page : {3, -1, std::numeric_limits<std::int32_t>::max(),
                                  std::numeric_limits<std::int32_t>::min()}) {
    pool.table[1] = page;
    const KeyRows rows = pool.source({0, 12}).rows(0, 1, 5);
    EXPECT_GE(rows.key(4), begin) << page;
    EXPECT_LE(rows.key(7) + 8 * sizeof(float), end) << page;
  }
}

}  // namespace
}  // namespace treadle::run
