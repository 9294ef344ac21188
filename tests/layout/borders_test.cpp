// A tile alone is cut at the borders of its comparisons: exact, wherever its queries and keys stand.
#include "layout/borders.h"

#include <gtest/gtest.h>

#include <string>

#include "exact_layout.h"
#include "fuzz.h"
#include "parsed_mask.h"

namespace treadle::layout {
namespace {

std::vector<std::int64_t> borders_of(const Mask& mask, const passes::Box& box) {
  passes::CaptureTables tables({});
  passes::Bounds bounds(mask.graph, tables);
  bounds.evaluate(box);
  std::vector<std::int64_t> found;
  find_borders(found, mask.graph, comparisons(mask.graph), bounds, box);
  return found;
}

TEST(Borders, AreWhereComparisonsChange) {
  passes::Box box;
  box.q = {.low = 5000, .count = 1};
  box.kv = {.low = 0, .count = 6000};
  using Keys = std::vector<std::int64_t>;
  EXPECT_EQ(borders_of(mask_of("kv <= q && (q - kv < 1024 || kv < 4)"), box),
            (Keys{4, 3977, 5001}));
  EXPECT_EQ(borders_of(mask_of("2 * kv == q"), box), (Keys{2500, 2501}));
  EXPECT_EQ(borders_of(mask_of("2 * kv == q + 1"), box), Keys());
  EXPECT_EQ(borders_of(mask_of("7 - 3 * kv > 0"), box), (Keys{3}));
  EXPECT_EQ(borders_of(mask_of("kv >= 0 && kv < 6000"), box), Keys());
  box.q.count = 10;
  EXPECT_EQ(borders_of(mask_of("kv <= q"), box), (Keys{5001, 5010}));
}

TEST(Borders, LayoutsOfOneTileAreExact) {
  for (int round = 0; round < test::fuzz_count(1000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const auto number = [&](std::int64_t from, std::int64_t to) {
      return std::to_string(test::random_int(random, from, to));
    };
    const std::int64_t first = test::random_int(random, 0, 3000);
    const std::int64_t begin = test::random_int(random, 0, 3000);
    const Extent extent{.queries = {first, first + test::random_int(random, 1, 40)},
                        .keys = {begin, begin + test::random_int(random, 1, 700)}};
    const auto comparison = [&] {
      const char* ops[] = {"<", "<=", ">", ">=", "==", "!="};
      const std::string op = ops[test::random_int(random, 0, 5)];
      switch (test::random_int(random, 0, 3)) {
        case 0: return "kv " + op + " q + " + number(-600, 600);
        case 1: return "q - kv " + op + " " + number(-900, 900);
        case 2: return number(-3, 3) + " * kv " + op + " " + number(-9000, 9000);
        default:
          return "kv * " + number(1, 4) + " - q * " + number(1, 3) + " " + op + " " +
                 number(-900, 900);
      }
    };
    std::string text = comparison();
    for (std::int64_t more = test::random_int(random, 0, 3); more > 0; --more)
      text = "(" + text + (test::random_int(random, 0, 1) == 0 ? ") && (" : ") || (") +
             comparison() + ")";
    const Mask mask = mask_of(text);
    const Tiles tiles({}, extent.queries, 48);
    SCOPED_TRACE(text);
    expect_exact(mask, extent, tiles, build(mask, extent, tiles, *serial_executor()));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace treadle::layout
