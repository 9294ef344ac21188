// Random graphs over random captures, in every shape of kernel that the facts allow.
#include <gtest/gtest.h>

#include "agreement.h"
#include "base/element.h"
#include "fuzz.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::test {
namespace {

using ir::Input;

// Queries and keys are below this.
constexpr int positions = 56;

// Keys ascend and have gaps or none; queries are consecutive or not; a tile is full or not.
Tile random_tile(Random& random, std::int64_t width) {
  Tile tile{.b = static_cast<std::int32_t>(random_int(random, 0, 2)),
            .h = static_cast<std::int32_t>(random_int(random, 0, 5))};
  const std::int64_t queries = chance(random, 0.5) ? width : random_int(random, 1, width);
  const bool consecutive = chance(random, 0.6);
  auto query = static_cast<std::int32_t>(random_int(random, 0, positions - width));
  for (std::int64_t i = 0; i < queries; ++i) {
    tile.q.push_back(query);
    query =
        consecutive ? query + 1 : static_cast<std::int32_t>(random_int(random, 0, positions - 1));
  }
  const std::int64_t keys = random_int(random, 1, 40);
  const double gaps = chance(random, 0.5) ? 0 : random_real(random, 0, 0.3);
  auto key = static_cast<std::int32_t>(random_int(random, 0, 3));
  for (std::int64_t i = 0; i < keys && key < positions; ++i) {
    tile.keys.push_back(key);
    key += chance(random, gaps) ? static_cast<std::int32_t>(random_int(random, 2, 5)) : 1;
  }
  for (std::int64_t i = 0; i < tile.pairs(); ++i) {
    tile.score.push_back(static_cast<float>(detail::ordinary_or_special(random, true)));
    tile.grad.push_back(static_cast<float>(random_real(random, -2, 2)));
  }
  return tile;
}

Setting random_setting(Random& random, const plan::Target& target) {
  Setting setting{.target = target};
  setting.compute = chance(random, 0.7) ? DType::f32 : DType::f64;
  setting.real = chance(random, 0.7) ? setting.compute : DType::f64;
  setting.vectors = static_cast<int>(random_int(random, 1, 3));
  if (chance(random, 0.5))
    setting.pieces = {.whole = 0, .piece = static_cast<std::int32_t>(random_int(random, 1, 6))};
  return setting;
}

// What is known may be left unsaid.
plan::ModFacts forget_some(Random& random, plan::ModFacts facts) {
  if (chance(random, 0.2)) facts.narrow = false;
  if (chance(random, 0.2)) {
    facts.reads = plan::Reads::checked;
  } else if (facts.reads == plan::Reads::proven && chance(random, 0.3)) {
    facts.reads = plan::Reads::clamped;
  }
  if (chance(random, 0.2)) facts.consecutive = false;
  return facts;
}

void fuzz(int rounds, const GraphOptions& options, const CaptureOptions& memory) {
  const std::vector<plan::Target> targets = targets_here();
  for (int round = 0; round < fuzz_count(rounds); ++round) {
    const std::uint64_t seed = fuzz_seed(round);
    SCOPED_TRACE(seed_text(seed));
    Random random = rng(seed);
    const ir::Graph graph = random_graph(random, options);
    Setting setting = random_setting(random, one_of(random, targets));
    const Tile tile = random_tile(random, setting.width());
    const Captures captures = random_captures(random, graph, memory);
    setting.facts = forget_some(random, facts_of(graph, tile, captures.views));
    expect_agreement(graph, setting, tile, captures.views);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ModFuzz, ScoreMods) { fuzz(300, {}, {}); }

TEST(ModFuzz, Derivatives) {
  GraphOptions options{.outputs = 3};
  options.inputs.push_back(Input::grad);
  fuzz(150, options, {});
}

TEST(ModFuzz, Masks) {
  GraphOptions options = mask_options();
  options.operations = 24;
  fuzz(200, options, {});
}

TEST(ModFuzz, SmallIntegersThatAreNarrow) {
  GraphOptions options = mask_options();
  options.special_constants = false;
  options.may_poison = false;
  options.allow = [](ir::Op op) { return op != ir::Op::mul && op != ir::Op::shift_left; };
  fuzz(200, options, {.shortest = positions, .longest = positions + 8, .special_values = false});
}

TEST(ModFuzz, EveryDtypeInsideItsBuffer) {
  GraphOptions options{.slots = slots_of({base::all_dtypes.begin(), base::all_dtypes.end()})};
  options.may_poison = false;
  options.special_constants = false;
  options.allow = [](ir::Op op) {
    return op == ir::Op::load || op == ir::Op::add || op == ir::Op::sub || op == ir::Op::where;
  };
  fuzz(100, options, {.shortest = positions, .longest = positions + 8, .strided = false});
  fuzz(100, options, {.shortest = positions, .longest = positions + 8, .strided = true});
}

TEST(ModFuzz, EmptyBuffers) { fuzz(100, {}, {.shortest = 0, .longest = 2}); }

}  // namespace
}  // namespace treadle::test
