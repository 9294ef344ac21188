// Neighbourhood attention: along each axis, the nearest cells with the query's residue.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "expect_error.h"
#include "mask_picture.h"
#include "treadle/patterns.h"

namespace treadle::patterns {
namespace {

using test::drawn;
using test::Picture;
using test::picture;

// Said differently than in the mask: of the cells with the query's residue (causal: not after it)
// the `window` nearest ones, of two equally near the left one. Causal ones are those within window
// - 1 steps.
std::vector<std::int64_t> neighbors(const Axis& axis, std::int64_t x) {
  std::vector<std::int64_t> cells;
  for (std::int64_t y = 0; y < axis.length; ++y) {
    const bool late = axis.causal && y > x;
    if (!late && std::abs(x - y) % axis.dilation == 0) cells.push_back(y);
  }
  std::ranges::sort(cells, {}, [&](std::int64_t y) { return std::pair(std::abs(x - y), y); });
  if (static_cast<std::int64_t>(cells.size()) > axis.window) {
    cells.resize(static_cast<std::size_t>(axis.window));
  }
  return cells;
}

Picture expected(const std::vector<Axis>& axes) {
  std::int64_t cells = 1;
  for (const Axis& axis : axes) cells *= axis.length;
  return drawn(cells, cells, [&](std::int64_t q, std::int64_t kv) {
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      const std::vector<std::int64_t> seen = neighbors(*axis, q % axis->length);
      if (std::ranges::find(seen, kv % axis->length) == seen.end()) return false;
      q /= axis->length;
      kv /= axis->length;
    }
    return true;
  });
}

void expect_neighborhood(const std::vector<Axis>& axes) {
  const Picture pairs = expected(axes);
  const auto cells = static_cast<std::int64_t>(pairs.size());
  std::string description;
  for (const Axis& a : axes) {
    description += to_string(Dims{a.length, a.window, a.dilation, a.causal ? 1 : 0});
  }
  EXPECT_EQ(picture(neighborhood(axes), {.queries = cells, .keys = cells}), pairs) << description;
}

TEST(Neighborhood, Line) {
  EXPECT_EQ(picture(neighborhood({{.length = 6, .window = 3}}), {.queries = 6, .keys = 6}),
            (Picture{"###...", "###...", ".###..", "..###.", "...###", "...###"}));
  EXPECT_EQ(picture(neighborhood({{.length = 6, .window = 4}}), {.queries = 6, .keys = 6}),
            (Picture{"####..", "####..", "####..", ".####.", "..####", "..####"}));
  EXPECT_EQ(
      picture(neighborhood({{.length = 7, .window = 3, .dilation = 2}}), {.queries = 7, .keys = 7}),
      (Picture{"#.#.#..", ".#.#.#.", "#.#.#..", ".#.#.#.", "..#.#.#", ".#.#.#.", "..#.#.#"}));
  EXPECT_EQ(picture(neighborhood({{.length = 5, .window = 3, .causal = true}}),
                    {.queries = 5, .keys = 5}),
            (Picture{"#....", "##...", "###..", ".###.", "..###"}));
}

TEST(Neighborhood, EveryLine) {
  for (std::int64_t length = 1; length <= 11; ++length) {
    for (std::int64_t dilation = 1; dilation <= length; ++dilation) {
      for (std::int64_t window = 1; window * dilation <= length; ++window) {
        for (const bool causal : {false, true}) {
          expect_neighborhood(
              {{.length = length, .window = window, .dilation = dilation, .causal = causal}});
        }
      }
    }
  }
}

TEST(Neighborhood, Grids) {
  const std::vector<Axis> tall{{.length = 5, .window = 3},
                               {.length = 5, .window = 2, .dilation = 2},
                               {.length = 5, .window = 4, .causal = true}};
  const std::vector<Axis> wide{{.length = 7, .window = 3},
                               {.length = 7, .window = 2, .dilation = 3},
                               {.length = 7, .window = 3, .dilation = 2, .causal = true}};
  for (const Axis& row : tall) {
    for (const Axis& column : wide) expect_neighborhood({row, column});
  }
}

TEST(Neighborhood, Volumes) {
  expect_neighborhood(
      {{.length = 3, .window = 2}, {.length = 4, .window = 3}, {.length = 5, .window = 3}});
  expect_neighborhood({{.length = 4, .window = 2, .causal = true},
                       {.length = 3, .window = 1},
                       {.length = 5, .window = 2, .dilation = 2}});
}

TEST(Neighborhood, EveryoneSeesAsMany) {
  const std::vector<Axis> axes{{.length = 7, .window = 3, .dilation = 2},
                               {.length = 5, .window = 4}};
  for (const std::string& row : picture(neighborhood(axes), {.queries = 35, .keys = 35})) {
    EXPECT_EQ(std::count(row.begin(), row.end(), '#'), 12);
  }
}

TEST(Neighborhood, Graphs) {
  EXPECT_EQ(test::traced_mask(neighborhood({{.length = 100, .window = 7}})).text(),
            "t0 = clamp(q - 3, 0, 93);\nkv >= t0 && kv < t0 + 7");
  EXPECT_EQ(test::traced_mask(neighborhood({{.length = 8, .window = 3, .causal = true},
                                            {.length = 10, .window = 2, .causal = true}}))
                .text(),
            "t0 = q // 10;\nt1 = kv // 10;\nt2 = q % 10;\nt3 = kv % 10;\n"
            "t0 >= t1 && t0 - t1 < 3 && (t2 >= t3 && t2 - t3 < 2)");
}

TEST(Neighborhood, Errors) {
  EXPECT_ERROR(neighborhood({}), "neighborhood: 0 axes; there must be 1, 2 or 3");
  EXPECT_ERROR(neighborhood(std::vector<Axis>(4, {.length = 2, .window = 1})),
               "neighborhood: 4 axes; there must be 1, 2 or 3");
  EXPECT_ERROR(neighborhood({{.window = 1}}),
               "neighborhood: the length is 0; it must be at least 1");
  EXPECT_ERROR(neighborhood({{.length = 4}}),
               "neighborhood: the window is 0; it must be at least 1");
  EXPECT_ERROR(neighborhood({{.length = 4, .window = 1, .dilation = 0}}),
               "neighborhood: the dilation is 0; it must be at least 1");
  EXPECT_ERROR(neighborhood({{.length = 8, .window = 3, .dilation = 3}}),
               "neighborhood: a window of 3 with dilation 3 spans more than the length 8; window * "
               "dilation must be at most the length");
}

}  // namespace
}  // namespace treadle::patterns
