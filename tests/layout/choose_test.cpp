// The chosen order is about the cheapest, and makes strided and gridded masks nearly dense.
#include "layout/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fuzz.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "layout/statistics.h"
#include "passes/simplify.h"

namespace treadle::layout {
namespace {

Mask simplified_mask(std::string_view text) { return {passes::simplify(ir::parse(text, {})), {}}; }

const char* const strided = "q >= kv && (q - kv) % 128 == 0";
const char* const fixed = "q >= kv && (kv % 128 >= 112 || q // 128 == kv // 128)";

double exact_cost(const Mask& mask, const Extent& extent, const Choice& choice,
                  const TileWeights& weights) {
  return cost(
      build(mask, extent, Tiles(choice.order, extent.queries, choice.height), *serial_executor()),
      weights);
}

TEST(Choose, IsWithinATenthOfTheBestCandidate) {
  const auto executor = tbb_executor(2);
  std::vector<std::int64_t> lengths{100};
  if (!test::fuzz_small()) lengths.push_back(512);
  if (test::fuzz_size() == test::FuzzSize::full) lengths.push_back(800);
  for (const char* text :
       {"q >= kv", "q >= kv && q - kv < 100", "q >= kv && (q - kv) % 16 == 0",
        "q // 64 == kv // 64", "q >= kv && (kv % 32 >= 28 || q // 32 == kv // 32)",
        "abs(q % 32 - kv % 32) <= 2 && abs(q // 32 - kv // 32) <= 2", "(q & 15) == (kv & 15)",
        "(q >> 5) == (kv >> 5)", "q * kv % 7 == 0", "false",
        "(q - kv) % 12 == h || q % 50 == kv % 50"}) {
    for (const TileWeights& weights :
         {TileWeights{}, TileWeights{.lanes = 8, .weight = {10, 18, 27, 36}}}) {
      for (const std::int64_t length : lengths) {
        const Mask mask = simplified_mask(text);
        const Extent extent{.heads = 2, .queries = length, .keys = length};
        const Choice chosen = choose_order(mask, extent, weights, *executor);
        double best = 1e300;
        for (const Choice& candidate : candidates(mask.graph, extent, weights)) {
          best = std::min(best, exact_cost(mask, extent, candidate, weights));
        }
        EXPECT_LE(exact_cost(mask, extent, chosen, weights), 1.1 * best)
            << text << ", " << length << ": " << to_text(chosen.order) << ", " << chosen.height;
      }
    }
  }
}

TEST(Choose, StridedMasksGetResidueClasses) {
  const auto executor = tbb_executor(2);
  const Extent extent{.queries = 4096, .keys = 4096};
  const Mask mask = simplified_mask(strided);
  const Choice choice = choose_order(mask, extent, {}, *executor);
  EXPECT_EQ(choice.order, (Order{.kind = Order::Kind::residue, .modulus = 128}));
  const Layout layout = build(mask, extent, Tiles(choice.order, 4096, choice.height), *executor);
  const auto visible = static_cast<double>(visible_pairs(mask, layout, *executor));
  EXPECT_LE(static_cast<double>(layout.run_pairs()), 2.0 * visible);
}

TEST(Choose, FixedMasksWasteLittleEvenInIdentityOrder) {
  const auto executor = tbb_executor(2);
  const Extent extent{.queries = 4096, .keys = 4096};
  const Mask mask = simplified_mask(fixed);
  const Layout layout = build(mask, extent, Tiles({}, 4096, 48), *executor);
  const auto visible = static_cast<double>(visible_pairs(mask, layout, *executor));
  EXPECT_LE(static_cast<double>(layout.run_pairs()), 1.15 * visible);
  // Square blocks of 128 would touch nearly everything below the diagonal.
  EXPECT_GE(block_density(mask, extent, 128, *executor),
            6.5 * visible / static_cast<double>(layout.all_pairs()));
}

TEST(Choose, GridsGetRectangles) {
  const auto executor = tbb_executor(2);
  const Extent extent{.queries = 64 * 64, .keys = 64 * 64};
  const Mask mask = simplified_mask("abs(q % 64 - kv % 64) <= 3 && abs(q // 64 - kv // 64) <= 3");
  EXPECT_EQ(choose_order(mask, extent, {}, *executor).order.kind, Order::Kind::rectangle);
}

// What orders a mask suggests besides identity: residue classes, then blocks.
struct Suggested {
  const char* text;
  std::vector<std::int64_t> residues, blocks;
};

TEST(Choose, CandidatesAreTheNumbersThatDivideQueries) {
  for (const Suggested& suggested : {Suggested{"(q & 15) == (kv & 15)", {16}, {}},
                                     {"(q & 12) == (kv & 12)", {}, {}},  // not the lowest bits
                                     {"(q >> 5) == (kv >> 5)", {}, {32}},
                                     {"(q >> 0) == (kv >> 63)", {}, {}},
                                     {"(q - kv) % 12 == 0", {12}, {}},
                                     {"(q + h) // 9 == kv", {}, {9}},
                                     {"kv % 32 >= 28 || q // 64 == kv // 64", {}, {64}},
                                     {"(kv + 3) // 8 == q && h % 7 == 0", {}, {}},
                                     {"(kv & 15) == q || kv >> 5 == b", {}, {}},
                                     {"q % 1 == kv % 2 || q % 5000 == kv", {}, {}},
                                     {"float(q) / 4.0 < float(kv)", {}, {}}}) {
    std::vector<std::int64_t> residues, blocks;
    const ir::Graph mask = ir::parse(suggested.text, {});
    for (const Choice& choice : candidates(mask, {.queries = 1000, .keys = 1000}, {})) {
      // In three heights each.
      if (choice.height != 16) continue;
      if (choice.order.kind == Order::Kind::residue) residues.push_back(choice.order.modulus);
      if (choice.order.kind == Order::Kind::blocks) blocks.push_back(choice.order.modulus);
    }
    EXPECT_EQ(residues, suggested.residues) << suggested.text;
    EXPECT_EQ(blocks, suggested.blocks) << suggested.text;
  }
}

// No candidate is taller than the tiles that kernels are made for.
TEST(Choose, HeightsComeFromTheWeights) {
  const ir::Graph mask = ir::parse("q % 32 == kv % 32 || q // 32 == kv // 32", {});
  for (const TileWeights& weights :
       {TileWeights{.lanes = 8, .weight = {10}}, TileWeights{.lanes = 8, .weight = {10, 18}},
        TileWeights{.lanes = 4, .weight = {10, 18, 27, 36, 45}}}) {
    std::set<std::int64_t> identity, all;
    for (const Choice& choice : candidates(mask, {.queries = 1000, .keys = 1000}, weights)) {
      all.insert(choice.height);
      if (choice.order.kind == Order::Kind::identity) identity.insert(choice.height);
    }
    std::set<std::int64_t> expected;
    for (int vectors = 1; vectors <= weights.vectors(); ++vectors)
      expected.insert(std::int64_t{vectors} * weights.lanes);
    EXPECT_EQ(identity, expected);
    EXPECT_EQ(all, expected);
  }
}

TEST(TileWeights, TallerTilesAreHandledInParts) {
  const TileWeights weights{.lanes = 8, .weight = {10, 18}};
  EXPECT_EQ(weights.of(0), 10);
  EXPECT_EQ(weights.of(8), 10);
  EXPECT_EQ(weights.of(9), 18);
  EXPECT_EQ(weights.of(16), 18);
  EXPECT_EQ(weights.of(32), 36);
}

TEST(Choose, BitsOfPositionsMakeOrdersToo) {
  const auto executor = tbb_executor(2);
  const Extent extent{.queries = 960, .keys = 960};
  EXPECT_EQ(choose_order(simplified_mask("(q & 15) == (kv & 15)"), extent, {}, *executor).order,
            (Order{.kind = Order::Kind::residue, .modulus = 16}));
  // Of tiles of one or two vectors, none is as high as a block of 32.
  const TileWeights weights{.lanes = 24, .weight = {10, 18, 27, 36}};
  EXPECT_EQ(
      choose_order(simplified_mask("(q >> 5) == (kv >> 5)"), extent, weights, *executor).order,
      (Order{.kind = Order::Kind::blocks, .modulus = 32}));
}

// Small masks are looked at whole, so the cost is no estimate.
TEST(Choose, CostsEveryBatchAndHead) {
  const Extent extent{.batch = 3, .heads = 2, .queries = 100, .keys = 400};
  for (const char* text : {"kv < 10 + 100 * b + 7 * h", "kv < 10 + 100 * b", "kv < 10 + 90 * h"}) {
    const Mask mask = simplified_mask(text);
    const Choice choice = choose_order(mask, extent, {}, *serial_executor());
    EXPECT_DOUBLE_EQ(choice.cost, exact_cost(mask, extent, choice, {})) << text;
  }
}

TEST(Choose, AllCandidatesHaveACostBestFirst) {
  const Mask mask = simplified_mask(strided);
  for (const std::int64_t length : {512, 4096}) {
    const Extent extent{.queries = length, .keys = length};
    const auto all = costed_candidates(mask, extent, {}, *serial_executor());
    EXPECT_EQ(all.size(), candidates(mask.graph, extent, {}).size());
    EXPECT_EQ(all.front().order, choose_order(mask, extent, {}, *serial_executor()).order);
    for (const Choice& choice : all) {
      EXPECT_GE(choice.cost, all.front().cost);
      if (choice.estimated) continue;
      EXPECT_DOUBLE_EQ(choice.cost, exact_cost(mask, extent, choice, {}));
    }
    const auto again = costed_candidates(mask, extent, {}, *tbb_executor(3));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(again[i].cost, all[i].cost);
  }
}

TEST(TileWeights, TilesRunsAndPiecesCostSomething) {
  const TileWeights weights{
      .lanes = 8, .weight = {10, 18}, .per_tile = 20, .per_run = 2, .per_piece = 0.5};
  EXPECT_EQ(tile_cost({}, 8, weights), 200);
  const std::vector<layout::Run> runs{
      {0, 100, true},
      layout::Run::stepped({.begin = 128, .width = 1, .step = 4, .count = 7}, false)};
  EXPECT_EQ(tile_cost(runs, 16, weights), 107 * 18 + (20 + 2 * 2 + 0.5 * 8) * 10);
}

TEST(Statistics, CountEveryVisiblePair) {
  const auto executor = tbb_executor(2);
  const Extent extent{.batch = 2, .heads = 3, .queries = 70, .keys = 50};
  std::int64_t expected = 0;
  for (std::int64_t h = 0; h < 3; ++h) {
    for (std::int64_t q = 0; q < 70; ++q) {
      for (std::int64_t kv = 0; kv < 50; ++kv) expected += 2 * (q * kv % 7 < 3 + h);
    }
  }
  const Mask mask = simplified_mask("q * kv % 7 < 3 + h");
  for (const std::int64_t height : {1, 16, 48}) {
    EXPECT_EQ(visible_pairs(mask, build(mask, extent, Tiles({}, 70, height), *executor), *executor),
              expected);
  }
  EXPECT_DOUBLE_EQ(
      block_density(simplified_mask("q >= kv"), {.queries = 100, .keys = 100}, 50, *executor),
      0.75);
}

}  // namespace
}  // namespace treadle::layout
