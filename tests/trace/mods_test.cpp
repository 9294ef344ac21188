// The mods of treadle/mods.h: their graphs, and their values against their formulas on a grid.
#include "treadle/mods.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "traced.h"

namespace treadle {
namespace {

using test::Point;
using test::traced_mask;
using test::traced_score;

// Calls check(point) for 2 batches, 2 heads, 6 queries, 9 keys.
void for_grid(const std::function<void(const Point&)>& check) {
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t q = 0; q < 6; ++q) {
        for (std::int64_t kv = 0; kv < 9; ++kv) {
          check({.score = 0.25 * static_cast<double>(q + 3 * kv) - 3,
                 .b = b,
                 .h = h,
                 .q = q,
                 .kv = kv});
        }
      }
    }
  }
}

void expect_score(const ScoreMod& mod, const std::string& text,
                  const std::function<double(const Point&)>& formula) {
  const test::Traced traced = traced_score(mod);
  EXPECT_EQ(traced.text(), text);
  for_grid([&](const Point& p) {
    ASSERT_EQ(traced.at(p).poison, "");
    ASSERT_NEAR(traced.at(p).real, formula(p), 1e-12) << "q " << p.q << " kv " << p.kv;
  });
}

void expect_mask(const MaskMod& mod, const std::string& text,
                 const std::function<bool(const Point&)>& formula) {
  const test::Traced traced = traced_mask(mod);
  EXPECT_EQ(traced.text(), text);
  for_grid([&](const Point& p) {
    ASSERT_EQ(traced.at(p).poison, "");
    ASSERT_EQ(traced.at(p).boolean, formula(p)) << "b " << p.b << " q " << p.q << " kv " << p.kv;
  });
}

TEST(Mods, Alibi) {
  std::vector<float> slopes{0.5, 0.25};
  expect_score(mods::alibi({"slopes", View(slopes.data(), {2})}),
               "score + slopes[h] * float(kv - q)", [&](const Point& p) {
                 return p.score +
                        slopes[static_cast<std::size_t>(p.h)] * static_cast<double>(p.kv - p.q);
               });
}

TEST(Mods, RelativeBias) {
  std::vector<double> table(2 * 7);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0.125 * static_cast<double>(i);
  expect_score(mods::relative_bias({"table", View(table.data(), {2, 7})}, 3),
               "score + table[h, clamp(q - kv, -3, 3) + 3]", [&](const Point& p) {
                 const std::int64_t distance = std::clamp<std::int64_t>(p.q - p.kv, -3, 3);
                 return p.score + table[static_cast<std::size_t>(p.h * 7 + distance + 3)];
               });
}

TEST(Mods, SoftCap) {
  expect_score(mods::soft_cap(1.5), "1.5 * tanh(score / 1.5)",
               [](const Point& p) { return 1.5 * std::tanh(p.score / 1.5); });
}

TEST(Mods, Causal) {
  expect_mask(mods::causal(), "q >= kv", [](const Point& p) { return p.q >= p.kv; });
}

TEST(Mods, CausalLowerRight) {
  expect_mask(mods::causal_lower_right(6, 9), "q + 3 >= kv",
              [](const Point& p) { return p.kv <= p.q + 3; });
  expect_mask(mods::causal_lower_right(9, 6), "q + -3 >= kv",
              [](const Point& p) { return p.kv <= p.q - 3; });
}

TEST(Mods, Window) {
  expect_mask(mods::window(2), "abs(q - kv) < 2",
              [](const Point& p) { return std::abs(p.q - p.kv) < 2; });
  expect_mask(mods::window({"size", 3}), "abs(q - kv) < size",
              [](const Point& p) { return std::abs(p.q - p.kv) < 3; });
}

TEST(Mods, WindowWithCausalIsTheLatestKeys) {
  expect_mask(mods::causal() & mods::window(2), "q >= kv && abs(q - kv) < 2",
              [](const Point& p) { return p.kv == p.q || p.kv == p.q - 1; });
}

TEST(Mods, PrefixLm) {
  std::vector<std::int32_t> prefix{0, 4};
  expect_mask(
      mods::prefix_lm({"prefix", View(prefix.data(), {2})}), "kv < prefix[b] || q >= kv",
      [&](const Point& p) { return p.q >= p.kv || p.kv < prefix[static_cast<std::size_t>(p.b)]; });
}

TEST(Mods, Document) {
  std::vector<std::int64_t> ids{0, 0, 1, 1, 1, 2, 2, 2, 0};
  expect_mask(mods::document({"ids", View(ids.data(), {9})}), "ids[q] == ids[kv]",
              [&](const Point& p) {
                return ids[static_cast<std::size_t>(p.q)] == ids[static_cast<std::size_t>(p.kv)];
              });
}

TEST(Mods, Padding) {
  std::vector<std::int64_t> lengths{9, 4};
  expect_mask(mods::padding({"lengths", View(lengths.data(), {2})}), "kv < lengths[b]",
              [&](const Point& p) { return p.kv < lengths[static_cast<std::size_t>(p.b)]; });
}

TEST(Mods, Dilated) {
  expect_mask(mods::dilated(3), "(q - kv) % 3 == 0",
              [](const Point& p) { return std::abs(p.q - p.kv) % 3 == 0; });
}

TEST(Mods, Chain) {
  expect_score(mods::chain(mods::soft_cap(2), mods::soft_cap(1)),
               "1.0 * tanh(2.0 * tanh(score / 2.0) / 1.0)",
               [](const Point& p) { return std::tanh(2 * std::tanh(p.score / 2)); });
}

TEST(Mods, Negation) {
  expect_mask(!mods::causal(), "!(q >= kv)", [](const Point& p) { return p.kv > p.q; });
}

}  // namespace
}  // namespace treadle
