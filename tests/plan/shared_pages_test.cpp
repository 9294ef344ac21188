// Sequences that begin with the same pages are found, whatever else they have.
#include "plan/shared_pages.h"

#include <gtest/gtest.h>

#include "fuzz.h"

namespace treadle::plan {
namespace {

using Tables = std::vector<std::vector<std::int32_t>>;

std::vector<SharedPages> found(const Tables& tables, std::int64_t most = 64,
                               std::int64_t fewest = 1) {
  std::vector<PageTable> views;
  for (const auto& table : tables) views.push_back({table.data(), 1, std::ssize(table)});
  return shared_pages(views, most, fewest);
}

TEST(SharedPagesOf, NothingInCommon) {
  EXPECT_TRUE(found({}).empty());
  EXPECT_TRUE(found({{1, 2}, {}, {3, 4}, {2, 1}}).empty());
}

TEST(SharedPagesOf, AGroup) {
  const auto groups = found({{7, 8, 9, 1}, {5}, {7, 8, 9, 2}, {7, 8, 9}});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].sequences, (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(groups[0].pages, 3);
}

// Two that have ten pages in common are better off without a third that has one.
TEST(SharedPagesOf, ThoseWithTheMostInCommon) {
  const auto groups = found({{1, 2, 3, 4, 5, 6}, {1, 9, 9}, {1, 2, 3, 4, 5, 7}, {1, 9, 8}});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].sequences, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(groups[0].pages, 5);
  EXPECT_EQ(groups[1].sequences, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(groups[1].pages, 2);
}

TEST(SharedPagesOf, FewPagesAreNotWorthIt) {
  EXPECT_TRUE(found({{1, 2, 3}, {1, 2, 4}}, 64, 3).empty());
  EXPECT_EQ(found({{1, 2, 3}, {1, 2, 4}}, 64, 2).size(), 1u);
}

TEST(SharedPagesOf, LargeGroupsAreCut) {
  const auto groups = found(Tables(10, {4, 5, 6}), 4);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].sequences.size(), 4u);
  EXPECT_EQ(groups[2].sequences, (std::vector<std::int64_t>{8, 9}));
}

TEST(SharedPagesOf, RandomTables) {
  for (int round = 0; round < test::fuzz_count(1000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    Tables tables(random() % 12);
    for (auto& table : tables) {
      table.resize(random() % 6);
      for (std::int32_t& page : table) page = static_cast<std::int32_t>(random() % 2);
    }
    const auto most = static_cast<std::int64_t>(2 + random() % 5);
    const auto fewest = static_cast<std::int64_t>(1 + random() % 3);
    std::vector<int> times(tables.size());
    for (const SharedPages& group : found(tables, most, fewest)) {
      EXPECT_GE(group.sequences.size(), 2u);
      EXPECT_LE(std::ssize(group.sequences), most);
      EXPECT_GE(group.pages, fewest);
      const auto& first = tables[static_cast<std::size_t>(group.sequences.front())];
      for (const std::int64_t s : group.sequences) {
        const auto& table = tables[static_cast<std::size_t>(s)];
        ASSERT_GE(std::ssize(table), group.pages);
        EXPECT_TRUE(std::equal(table.begin(), table.begin() + group.pages, first.begin()));
        EXPECT_EQ(++times[static_cast<std::size_t>(s)], 1);
      }
    }
  }
}

}  // namespace
}  // namespace treadle::plan
