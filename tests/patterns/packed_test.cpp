// Documents, jagged sequences, prefixes and trees against plain loops.
#include <gtest/gtest.h>

#include <random>

#include "expect_error.h"
#include "fuzz.h"
#include "mask_picture.h"
#include "treadle/treadle.h"

namespace treadle::patterns {
namespace {

using test::drawn;
using test::Picture;
using test::picture;
using Numbers = std::vector<std::int64_t>;

// The sequence that position p lies in, from cumulative ends.
std::int64_t sequence_of(const Numbers& ends, std::int64_t p) {
  std::int64_t sequence = 0;
  while (ends[static_cast<std::size_t>(sequence) + 1] <= p) ++sequence;
  return sequence;
}

TEST(Packed, Documents) {
  const Numbers ends{0, 3, 3, 4, 9};
  const Picture same =
      drawn(9, 9, [&](auto q, auto kv) { return sequence_of(ends, q) == sequence_of(ends, kv); });
  EXPECT_EQ(picture(documents({.lengths = {3, 0, 1, 5}}), {.queries = 9, .keys = 9}), same);
  EXPECT_EQ(picture(documents({.lengths = {2, 3}}) & mods::causal(), {.queries = 5, .keys = 5}),
            (Picture{"#....", "##...", "..#..", "..##.", "..###"}));
  EXPECT_ERROR(documents({.lengths = {3, -1}}),
               "documents: the length of a document is -1; it must be at least 0");
}

TEST(Packed, PositionsAfterTheLastDocumentFailTheCall) {
  Options options;
  options.mask = documents({.lengths = {3, 4}});
  const Tensor x(DType::f32, {1, 1, 8, 4});
  EXPECT_ERROR(attention({x, x, x}, options),
               "mask: c0: index 7 along dimension 0 is outside its length 7, at (b 0, h 0, q 0, kv "
               "7)");
}

TEST(Packed, TwoPatternsWithTablesInOneMask) {
  const MaskMod either = documents({.lengths = {2, 2, 2}}) | documents({.lengths = {1, 3, 2}});
  EXPECT_EQ(picture(either, {.queries = 6, .keys = 6}),
            (Picture{"##....", "####..", ".###..", ".###..", "....##", "....##"}));
}

TEST(Packed, JaggedWithOneSetOfEnds) {
  const MaskMod causal = jagged({.query_ends = {0, 2, 5}, .inner = mods::causal()});
  EXPECT_EQ(picture(causal, {.queries = 5, .keys = 5}),
            (Picture{"#....", "##...", "..#..", "..##.", "..###"}));
  EXPECT_EQ(picture(jagged({.query_ends = {0, 2, 5}}), {.queries = 5, .keys = 5}),
            picture(documents({.lengths = {2, 3}}), {.queries = 5, .keys = 5}));
}

TEST(Packed, JaggedWithTwoSetsOfEnds) {
  const Numbers query_ends{0, 2, 2, 3, 7};
  const Numbers key_ends{0, 5, 6, 6, 9};
  for (const Jagged::Align align : {Jagged::Align::first, Jagged::Align::last}) {
    for (const std::int64_t window : {1, 2, 100}) {
      const MaskMod mask = jagged({.query_ends = query_ends,
                                   .key_ends = key_ends,
                                   .inner = mods::causal() & mods::window(window),
                                   .align = align});
      EXPECT_EQ(picture(mask, {.queries = 7, .keys = 9}),
                drawn(7, 9, [&](std::int64_t q, std::int64_t kv) {
                  const auto s = static_cast<std::size_t>(sequence_of(query_ends, q));
                  if (s != static_cast<std::size_t>(sequence_of(key_ends, kv))) return false;
                  // From the first or from the last of each side.
                  const std::int64_t ahead = align == Jagged::Align::first
                                                 ? (q - query_ends[s]) - (kv - key_ends[s])
                                                 : (key_ends[s + 1] - kv) - (query_ends[s + 1] - q);
                  return 0 <= ahead && ahead < window;
                }));
    }
  }
}

TEST(Packed, JaggedErrors) {
  EXPECT_ERROR(jagged({}), "jagged: query ends are []; they must begin with 0");
  EXPECT_ERROR(jagged({.query_ends = {1, 4}}),
               "jagged: query ends are [1, 4]; they must begin with 0");
  EXPECT_ERROR(jagged({.query_ends = {0, 4}, .key_ends = {0, 4, 3}}),
               "jagged: key ends are [0, 4, 3]; they must not fall");
  EXPECT_ERROR(jagged({.query_ends = {0, 4}, .key_ends = {0, 4, 5}}),
               "jagged: 1 sequences of queries, 2 of keys; they must be equal");
}

TEST(Packed, PrefixLm) {
  const Numbers lengths{0, 3, 9};
  const MaskMod mask = prefix_lm({.lengths = lengths});
  for (std::int64_t b = 0; b < 3; ++b) {
    EXPECT_EQ(picture(mask, {.queries = 6, .keys = 6, .b = b}),
              drawn(6, 6, [&](std::int64_t q, std::int64_t kv) {
                return kv <= q || kv < lengths[static_cast<std::size_t>(b)];
              }));
  }
  EXPECT_ERROR(prefix_lm({.lengths = {1, -2}}),
               "prefix_lm: the length of a prefix is -2; it must be at least 0");
}

// ---- trees ----

bool is_ancestor_or_self(const Numbers& parents, std::int64_t above, std::int64_t node) {
  for (; node != -1; node = parents[static_cast<std::size_t>(node)]) {
    if (node == above) return true;
  }
  return false;
}

TEST(Packed, SmallTree) {
  //      0
  //    1   2
  //   3 4   5
  EXPECT_EQ(picture(tree({.parents = {-1, 0, 0, 1, 1, 2}}), {.queries = 6, .keys = 6}),
            (Picture{"#.....", "##....", "#.#...", "##.#..", "##..#.", "#.#..#"}));
}

TEST(Packed, RandomForestsInAnyOrder) {
  for (int round = 0; round < test::fuzz_count(200); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    // Parents come first in `order`, but node numbers are shuffled.
    const auto count = static_cast<std::int64_t>(1 + random() % 14);
    Numbers order(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), random);
    Numbers parents(order.size(), -1);
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (random() % 5 == 0) continue;
      parents[static_cast<std::size_t>(order[i])] = order[random() % i];
    }
    const std::int64_t context = static_cast<std::int64_t>(random() % 4);
    const MaskMod mask = tree({.parents = parents, .context = Capture("context", context)});
    EXPECT_EQ(picture(mask, {.queries = count, .keys = context + count}),
              drawn(count, context + count, [&](std::int64_t q, std::int64_t kv) {
                return kv < context || is_ancestor_or_self(parents, kv - context, q);
              }));
  }
}

TEST(Packed, AChainIsCausal) {
  Numbers parents;
  for (std::int64_t i = 0; i < 30; ++i) parents.push_back(i - 1);
  EXPECT_EQ(picture(tree({.parents = parents}), {.queries = 30, .keys = 30}),
            picture(mods::causal(), {.queries = 30, .keys = 30}));
}

TEST(Packed, TheContextGrowsWithoutCompilingAnew) {
  Options options;
  options.mask = tree({.parents = {-1, 0, 0}, .context = Capture("context", 0)});
  const Attention compiled = compile(options);
  for (const std::int64_t context : {0, 5}) {
    const std::int64_t keys = context + 3;
    const Tensor q(DType::f64, {1, 1, 3, 1});
    const Tensor k(DType::f64, {1, 1, keys, 1});
    Tensor v(DType::f64, {1, 1, keys, 1});
    v.at<double>({0, 0, context + 1, 0}) = 1;  // node 1 is seen by itself alone
    const Tensor out = compiled.forward({q, k, v}, {{Capture("context", context)}, {}}).out;
    EXPECT_EQ(out.at<double>({0, 0, 0, 0}), 0.0);
    EXPECT_NEAR(out.at<double>({0, 0, 1, 0}), 1.0 / static_cast<double>(context + 2), 1e-15);
    EXPECT_EQ(out.at<double>({0, 0, 2, 0}), 0.0);
  }
}

TEST(Packed, TreeErrors) {
  EXPECT_ERROR(tree({.parents = {-1, 2}}),
               "tree: node 1 has parent 2; it must be one of 2 nodes, or -1 for a root");
  EXPECT_ERROR(tree({.parents = {-2}}),
               "tree: node 0 has parent -2; it must be one of 1 nodes, or -1 for a root");
  EXPECT_ERROR(tree({.parents = {-1, 2, 3, 2}}),
               "tree: node 1 is its own ancestor, or has one that is; there must be no cycle");
  EXPECT_ERROR(tree({.parents = {0}}),
               "tree: node 0 is its own ancestor, or has one that is; there must be no cycle");
  EXPECT_ERROR(tree({.parents = {-1}, .context = Capture("context", 1.0)}),
               "tree: the context is f64 of shape []; it must be an integer scalar");
}

}  // namespace
}  // namespace treadle::patterns
