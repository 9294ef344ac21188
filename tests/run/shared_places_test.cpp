// Places of tiles, put together: each once, in whole steps, tiles in their order.
#include "run/shared_places.h"

#include <gtest/gtest.h>

#include <vector>

#include "fuzz.h"

namespace treadle::run {
namespace {

using layout::Range;
using test::random_int;

struct Added {
  Range tiles, places;
  bool operator==(const Added&) const = default;
};

std::vector<Added> shared(const std::vector<Range>& places, std::int64_t step) {
  std::vector<Added> all;
  for_each_shared(places, step, [&](Range tiles, Range some) { all.push_back({tiles, some}); });
  return all;
}

TEST(SharedPlaces, OfACausalClass) {
  const std::vector<Added> expected{{{0, 3}, {0, 18}}, {{1, 3}, {18, 36}}, {{2, 3}, {36, 48}}};
  EXPECT_EQ(shared({{0, 16}, {0, 32}, {0, 48}}, 6), expected);
}

TEST(SharedPlaces, OfTilesThatAreApart) {
  const std::vector<Added> expected{{{0, 1}, {4, 8}}, {{2, 3}, {4, 8}}, {{0, 1}, {8, 12}}};
  EXPECT_EQ(shared({{5, 12}, {}, {4, 7}}, 4), expected);
  EXPECT_TRUE(shared({{}, {}}, 4).empty());
}

TEST(SharedPlaces, AreEachPlaceOnceWithItsTiles) {
  for (int round = 0; round < test::fuzz_count(2000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::int64_t step = random_int(random, 1, 8);
    std::vector<Range> places;
    for (std::int64_t tiles = random_int(random, 1, 7); tiles > 0; --tiles) {
      const std::int64_t begin = random_int(random, 0, 40);
      places.emplace_back(begin, begin + std::max<std::int64_t>(0, random_int(random, -5, 30)));
    }
    // [place][tile]: how often
    std::vector<std::vector<int>> times(128, std::vector<int>(places.size()));
    std::vector<std::int64_t> last(128, -1);
    for (const Added& one : shared(places, step)) {
      EXPECT_TRUE(one.places.begin % step == 0 && one.places.end % step == 0);
      for (std::int64_t place = one.places.begin; place < one.places.end; ++place) {
        const auto at = static_cast<std::size_t>(place);
        EXPECT_GT(one.tiles.begin, last[at]);
        last[at] = one.tiles.end - 1;
        for (std::int64_t tile = one.tiles.begin; tile < one.tiles.end; ++tile)
          ++times[at][static_cast<std::size_t>(tile)];
      }
    }
    for (std::int64_t place = 0; place < 128; ++place) {
      for (std::size_t tile = 0; tile < places.size(); ++tile) {
        const Range& own = places[tile];
        const bool looks = !own.empty() && place >= own.begin / step * step &&
                           place < (own.end + step - 1) / step * step;
        EXPECT_EQ(times[static_cast<std::size_t>(place)][tile], looks ? 1 : 0);
      }
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace treadle::run
