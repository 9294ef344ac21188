// Lists of single keys, chosen from data.
#include "layout/selection.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "fuzz.h"
#include "ir/parse.h"
#include "layout/build.h"

namespace treadle::layout {
namespace {

std::vector<Stretch> row(const Selection& selection, std::int64_t b, std::int64_t h,
                         std::int64_t block) {
  const auto stretches = selection.stretches(b, h, block);
  return {stretches.begin(), stretches.end()};
}

using Runs = std::vector<Run>;

Runs runs_of(const Layout& layout, std::int64_t tile) {
  const auto runs = layout.runs(0, 0, tile);
  return {runs.begin(), runs.end()};
}

TEST(SelectTokens, InAnyOrderNeighboursJoined) {
  const std::vector<std::int64_t> tokens{9, 2, 3, 4, 0, 5, 7, 6};
  const Selection selection =
      select_tokens({.queries = 20, .keys = 10}, 16, ConstView(tokens.data(), {1, 1, 2, 4}));
  EXPECT_EQ(row(selection, 0, 0, 0), (std::vector<Stretch>{{2, 5, false}, {9, 10, false}}));
  EXPECT_EQ(row(selection, 0, 0, 1), (std::vector<Stretch>{{0, 1, false}, {5, 8, false}}));
}

TEST(SelectTokens, CountsMakeListsOfDifferentLengths) {
  const std::vector<std::int32_t> tokens{3, -1, -1, 8, 1, -1};
  const std::vector<std::int64_t> counts{1, 2};
  const Selection selection =
      select_tokens({.batch = 3, .heads = 2, .queries = 4, .keys = 10}, 4,
                    ConstView(tokens.data(), {1, 2, 1, 3}), ConstView(counts.data(), {1, 2, 1}));
  EXPECT_FALSE(selection.per_batch());
  EXPECT_EQ(row(selection, 2, 0, 0), (std::vector<Stretch>{{3, 4, false}}));
  EXPECT_EQ(row(selection, 0, 1, 0), (std::vector<Stretch>{{1, 2, false}, {8, 9, false}}));
}

TEST(SelectTokens, TheMaskStillDecides) {
  const std::vector<std::int64_t> tokens{0, 5, 20, 21};
  const Extent extent{.queries = 16, .keys = 32};
  const Selection selection = select_tokens(extent, 16, ConstView(tokens.data(), {1, 1, 1, 4}));
  const Layout layout =
      build({ir::parse("q >= kv", {}), {}}, selection, Tiles({}, 16, 16), *serial_executor());
  EXPECT_EQ(runs_of(layout, 0), (Runs{{0, 1, true}, {5, 6, false}}));
}

TEST(SelectTokens, BadInput) {
  std::vector<std::int64_t> tokens{3, -1};
  const Extent extent{.queries = 4, .keys = 10};
  const ConstView view(tokens.data(), {1, 1, 1, 2});
  EXPECT_ERROR(select_tokens(extent, 4, view),
               "selection: batch 0, head 0, query block 0: key -1 is selected; there are 10. Lists "
               "that are filled up need counts");
  const std::vector<std::int64_t> two{2};
  const ConstView counts(two.data(), {1, 1, 1});
  EXPECT_ERROR(select_tokens(extent, 4, view, counts),
               "selection: batch 0, head 0, query block 0: key -1 is selected; there are 10");
  tokens[1] = 10;
  EXPECT_ERROR(select_tokens(extent, 4, view),
               "selection: batch 0, head 0, query block 0: key 10 is selected; there are 10");
  tokens[1] = 3;
  EXPECT_ERROR(select_tokens(extent, 4, view),
               "selection: batch 0, head 0, query block 0: key 3 is selected twice");
  EXPECT_ERROR(select_tokens(extent, 2, view),
               "selection: tokens has shape [1, 1, 1, 2]; [1, 1, 2, 2] is needed, where batch and "
               "heads may also be 1");
  EXPECT_ERROR(select_tokens(extent, 0, view),
               "selection: query blocks of 0; they hold at least 1 query");
}

}  // namespace
}  // namespace treadle::layout
