// simplify keeps every value, every poison and every derivative, and makes what it promises
// simpler.
#include "passes/simplify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <optional>

#include "expect_error.h"
#include "fuzz.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/derive.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::passes {
namespace {

using test::Captures;
using test::Random;

const std::vector<ir::Slot> simplify_captures{
    {"f", DType::f32, 1}, {"i", DType::i64, 1}, {"n", DType::i64, 0}};

std::string simplified(std::string_view text) {
  return ir::to_text(simplify(ir::parse(text, simplify_captures)));
}

TEST(Simplify, FoldsConstantsThatBothPrecisionsAgreeOn) {
  EXPECT_EQ(simplified("score + (0.5 + 0.25)"), "score + 0.75");
  EXPECT_EQ(simplified("score + (0.3 + 0.4)"), "score + (0.3 + 0.4)");
  EXPECT_EQ(simplified("q < 3 * 4 + 1"), "q < 13");
  EXPECT_EQ(simplified("q < -7 // 2"), "false");
  EXPECT_EQ(simplified("where(2 > 1, score, 0.0)"), "score");
}

TEST(Simplify, RemovesNeutralElements) {
  EXPECT_EQ(simplified("score * 1 - 0.0"), "score");
  EXPECT_EQ(simplified("1.0 * score / 1.0"), "score");
  EXPECT_EQ(simplified("score + -0.0"), "score");
  EXPECT_EQ(simplified("q + 0 == kv * 1"), "q == kv");
  EXPECT_EQ(simplified("score ** 1.0"), "score");
  EXPECT_EQ(simplified("true && q >= kv"), "q >= kv");
  EXPECT_EQ(simplified("false || q >= kv"), "q >= kv");
  EXPECT_EQ(simplified("where(q >= kv, true, false)"), "q >= kv");
}

TEST(Simplify, KeepsWhatIsNotExact) {
  EXPECT_EQ(simplified("score + 0.0"), "score + 0.0");  // -0
  EXPECT_EQ(simplified("score * 0.0"), "score * 0.0");  // NaN, inf, -0
  EXPECT_EQ(simplified("score - score"), "score - score");
  EXPECT_EQ(simplified("score / 3.0"), "score / 3.0");
  EXPECT_EQ(simplified("max(score, score)"), "max(score, score)");
  EXPECT_EQ(simplified("!(score < 1.0)"), "!(score < 1.0)");  // NaN
  EXPECT_EQ(simplified("score == score"), "score == score");
}

TEST(Simplify, KeepsWhatMayBePoisoned) {
  EXPECT_EQ(simplified("score + float(i[q] * 0)"), "score + float(i[q] * 0)");
  EXPECT_EQ(simplified("i[q] == i[q]"), "t0 = i[q];\nt0 == t0");
  EXPECT_EQ(simplified("q % n == q % n"), "t0 = q % n;\nt0 == t0");
  EXPECT_EQ(simplified("q * 0 == 0"), "true");
}

TEST(Simplify, DividesByPowersOfTwoWithAProduct) {
  EXPECT_EQ(simplified("score / 4"), "score * 0.25");
  EXPECT_EQ(simplified("score / -1"), "-score");
}

TEST(Simplify, Comparisons) {
  EXPECT_EQ(simplified("0 <= q - kv"), "q >= kv");
  EXPECT_EQ(simplified("3 > q + 1"), "q < 2");
  EXPECT_EQ(simplified("q >= 0"), "true");
  EXPECT_EQ(simplified("q % 8 < 0"), "false");
  EXPECT_EQ(simplified("!(q < kv)"), "q >= kv");
  EXPECT_EQ(simplified("!(score == 1.0)"), "score != 1.0");
  EXPECT_EQ(simplified("q == q"), "true");
}

TEST(Simplify, Integers) {
  EXPECT_EQ(simplified("q // 4 // 8 == kv"), "q // 32 == kv");
  EXPECT_EQ(simplified("q % 8 % 8 == kv"), "q % 8 == kv");
  EXPECT_EQ(simplified("q + 1 + 2 == kv"), "q + 3 == kv");
  EXPECT_EQ(simplified("abs(q) == kv"), "q == kv");
  EXPECT_EQ(simplified("-(-q) == kv"), "q == kv");
  EXPECT_EQ(simplified("floor(float(q)) == float(kv)"), "float(q) == float(kv)");
}

TEST(Simplify, ChoicesThatWereMadeBefore) {
  EXPECT_EQ(simplified("where(q < kv, score, where(q < kv, 1.0, 2.0))"),
            "where(q < kv, score, 2.0)");
  EXPECT_EQ(simplified("where(q < kv, where(q < kv, 1.0, 2.0), score)"),
            "where(q < kv, 1.0, score)");
}

void expect_unchanged(std::string_view text) {
  const ir::Graph graph = ir::parse(text, simplify_captures);
  EXPECT_EQ(simplify(graph), graph) << simplified(text);
}

TEST(Simplify, LeavesWhatWouldChangeAValue) {
  // 2^130 is inf in fp32, where its reciprocal is a number; of 2^-130 it is the other way round.
  expect_unchanged("score / 1361129467683753853853498429727072845824.0");
  expect_unchanged("score / 7.346839692639297e-40");
  // A product of 2^64 would wrap to 0; likewise a difference of 64-bit numbers.
  expect_unchanged("q // 4611686018427387904 // 4 == kv");
  expect_unchanged("i[0] - n < 0");
}

TEST(Simplify, LeavesWhatWouldHidePoison) {
  expect_unchanged("isnan(float(i[q]))");
  expect_unchanged("i[q] | -1 == kv");
  expect_unchanged("where(i[q] > 0, q > kv, false)");
}

TEST(Simplify, ADivisorThatTurnsOutToBeZeroIsAnError) {
  EXPECT_ERROR(simplified("q % (kv - kv) == 0"), "mod: division by the constant 0");
}

// Random divisors turn out to be zero now and then; that is an error and not this test's business.
std::optional<ir::Graph> random_legal_graph(Random& random, const test::GraphOptions& options) {
  ir::Graph graph = test::random_graph(random, options);
  try {
    simplify(graph);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("division by the constant 0"));
    return std::nullopt;
  }
  return graph;
}

TEST(Simplify, IsIdempotent) {
  for (int round = 0; round < test::fuzz_count(500); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    const auto graph = random_legal_graph(random, {});
    if (!graph) continue;
    const ir::Graph once = simplify(*graph);
    EXPECT_EQ(simplify(once), once) << ir::to_text(once);
  }
}

// All NaNs are one; everything else by its bits.
template <class F>
bool same(F a, F b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::array<std::byte, sizeof(F)>>(a) ==
         std::bit_cast<std::array<std::byte, sizeof(F)>>(b);
}

std::vector<ConstView> views_for(const ir::Graph& part, const ir::Graph& whole,
                                 const Captures& captures) {
  std::vector<ConstView> views;
  for (const ir::Slot& slot : part.slots()) {
    views.push_back(
        captures
            .views[static_cast<std::size_t>(whole.find_slot(slot.name) - whole.slots().data())]);
  }
  return views;
}

template <class F>
void expect_same_values(Random& random, const ir::Graph& graph) {
  const ir::Graph simple = simplify(graph);
  ir::verify(simple);
  const Captures memory = test::random_captures(random, graph);
  const auto points = test::random_points<F>(random, 40);
  ir::Interpreter<F> before(graph, memory.views);
  ir::Interpreter<F> after(simple, views_for(simple, graph, memory));
  before(points.points(), points.count());
  after(points.points(), points.count());
  for (std::size_t i = 0; i < 40; ++i) {
    const bool poisoned = !before.poison(0).empty() && before.poison(0)[i] != 0;
    const bool still = !after.poison(0).empty() && after.poison(0)[i] != 0;
    ASSERT_EQ(poisoned, still) << ir::to_text(graph) << "\n-> " << ir::to_text(simple);
    if (poisoned) continue;
    switch (graph.output_type()) {
      case ir::Type::real:
        ASSERT_TRUE(same(before.reals(0)[i], after.reals(0)[i]))
            << before.reals(0)[i] << " became " << after.reals(0)[i] << "\n"
            << ir::to_text(graph) << "\n-> " << ir::to_text(simple);
        break;
      case ir::Type::integer:
        ASSERT_EQ(before.integers(0)[i], after.integers(0)[i]) << ir::to_text(graph);
        break;
      case ir::Type::boolean:
        ASSERT_EQ(before.booleans(0)[i], after.booleans(0)[i]) << ir::to_text(graph);
        break;
    }
  }
}

TEST(Simplify, PreservesValuesAndPoisonOfRandomGraphs) {
  int compared = 0;
  for (int round = 0; round < test::fuzz_count(24000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    test::GraphOptions options;
    if (seed % 3 == 1) options = test::mask_options();
    if (seed % 3 == 2) options.output = ir::Type::integer;
    options.operations = static_cast<int>(4 + seed % 24);
    const auto graph = random_legal_graph(random, options);
    if (!graph) continue;
    ++compared;
    if (seed % 2 == 0) {
      expect_same_values<float>(random, *graph);
    } else {
      expect_same_values<double>(random, *graph);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GE(compared, test::fuzz_at_least(20000));
}

// Order of sums may differ, so derivatives agree up to rounding; where they grow huge, rounding
// does too.
TEST(Simplify, PreservesDerivativesOfRandomGraphs) {
  int compared = 0;
  for (int round = 0; round < test::fuzz_count(6000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    test::GraphOptions options;
    options.special_constants = false;
    options.operations = static_cast<int>(3 + seed % 12);
    const auto legal = random_legal_graph(random, options);
    if (!legal) continue;
    const ir::Graph& graph = *legal;
    const ir::Joint before = derive(graph, {});
    const ir::Joint after = derive(simplify(graph), {});
    const Captures memory = test::random_captures(random, graph, {.special_values = false});
    const auto points = test::random_points<double>(random, 20, {.special_scores = false});
    ir::Interpreter<double> one(before.graph, views_for(before.graph, graph, memory));
    ir::Interpreter<double> two(after.graph, views_for(after.graph, graph, memory));
    one(points.points(), points.count());
    two(points.points(), points.count());
    for (std::size_t i = 0; i < 20; ++i) {
      if (!one.poison(0).empty() && one.poison(0)[i] != 0) continue;
      const double a = one.reals(0)[i];
      const double b = two.reals(0)[i];
      if (!(std::fabs(a) < 1e6)) continue;
      ++compared;
      ASSERT_NEAR(a, b, 1e-7 * std::max(1.0, std::fabs(a))) << ir::to_text(graph);
    }
  }
  EXPECT_GE(compared, test::fuzz_at_least(12000));
}

}  // namespace
}  // namespace treadle::passes
