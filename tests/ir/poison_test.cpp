// Reads outside a buffer and divisions by a run-time zero: what they poison, and what they do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "evaluate.h"
#include "fuzz.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "random_points.h"
#include "treadle/tensor.h"

namespace treadle::ir {
namespace {

using test::evaluate;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<Slot> poison_captures{{"seen", DType::boolean, 1}, {"bias", DType::f32, 2}};

class Poison : public testing::Test {
 protected:
  Poison() : seen_(DType::boolean, {4}), bias_(DType::f32, {4, 3}) {
    for (std::int64_t i = 0; i < 4; ++i) seen_.at<bool>({i}) = i % 2 != 0;
  }

  // At q = 9, which is outside of everything, and kv = 1, which is inside.
  test::Outcome outcome(const std::string& text) const {
    const Graph graph = parse(text, poison_captures);
    std::vector<ConstView> views;
    for (const Slot& slot : graph.slots()) views.push_back(slot.name == "seen" ? seen_ : bias_);
    return evaluate(graph, {.q = 9, .kv = 1}, views);
  }

  void expect_sound(const std::string& text, bool value) const {
    EXPECT_EQ(outcome(text).poison, "") << text;
    EXPECT_EQ(outcome(text).boolean, value) << text;
  }

  void expect_poison(
      const std::string& text,
      const std::string& reason = "seen: index 9 along dimension 0 is outside its length 4") const {
    EXPECT_EQ(outcome(text).poison, reason) << text;
  }

  Tensor seen_, bias_;
};

TEST_F(Poison, FalseAndAnythingIsFalse) {
  expect_sound("q < kv && seen[q]", false);
  expect_sound("seen[q] && q < kv", false);
  expect_poison("q > kv && seen[q]");
  expect_poison("seen[q] && q > kv");
  expect_poison("seen[q] && seen[q + 1]");
}

TEST_F(Poison, TrueOrAnythingIsTrue) {
  expect_sound("q > kv || seen[q]", true);
  expect_sound("seen[q] || q > kv", true);
  expect_poison("q < kv || seen[q]");
  expect_poison("seen[q] || q < kv");
}

TEST_F(Poison, NotAndXorAreNoWayOut) {
  expect_poison("!seen[q]");
  expect_poison("seen[q] ^ seen[kv]");
  expect_poison("!(seen[q] && true)");
  expect_sound("!(seen[q] && false)", true);
}

TEST_F(Poison, WhereTakesOnlyItsChosenSide) {
  expect_sound("where(q < 4, seen[q], true)", true);
  expect_sound("where(q >= 4, false, seen[q])", false);
  expect_poison("where(q >= 4, seen[q], false)");
  expect_poison("where(seen[q], true, true)");
}

TEST_F(Poison, EverythingElsePassesItOn) {
  expect_poison("float(seen[q]) * 0.0 == 0.0");
  expect_poison("bool(seen[q])");
  expect_poison("isnan(float(seen[q]))");
  expect_poison("clamp(seen[q], 0, 1) == 0");
  expect_sound("seen[clamp(q, 0, 3)]", true);
}

TEST_F(Poison, AReasonNamesTheReadAndTheDimension) {
  expect_poison("bias[q, kv] > 0.0", "bias: index 9 along dimension 0 is outside its length 4");
  expect_poison("bias[kv, q] > 0.0", "bias: index 9 along dimension 1 is outside its length 3");
  expect_poison("bias[kv, -1] > 0.0", "bias: index -1 along dimension 1 is outside its length 3");
  expect_poison("bias[9223372036854775807, 0] > 0.0",
                "bias: index 9223372036854775807 along dimension 0 is outside its length 4");
  expect_poison("bias[-9223372036854775808, 0] > 0.0",
                "bias: index -9223372036854775808 along dimension 0 is outside its length 4");
}

TEST_F(Poison, AReasonNamesWhereItEntered) {
  expect_poison("bias[int(seen[q]), 0] > 0.0");
  expect_poison("where(seen[kv], seen[q], seen[q + 5])");
  expect_poison("where(!seen[kv], seen[q + 5], seen[q])");
  expect_poison("q > kv && (q < kv || seen[q])");
  expect_poison("1 % (kv - 1) == 0 && seen[q]", "mod: the divisor is 0");
}

TEST_F(Poison, DivisionByARunTimeZero) {
  expect_poison("q // (kv - 1) == 0", "floor_div: the divisor is 0");
  expect_poison("q % (kv - 1) == 0", "mod: the divisor is 0");
  expect_sound("q // kv == 9", true);
  expect_sound("kv > 1 && q // (kv - 1) == 0", false);
  expect_sound("q / (kv - 1) == inf", true);  // floats divide by zero
}

TEST_F(Poison, SoundOutputsHaveNoReason) {
  Interpreter<double> run(parse("seen[q]", poison_captures), {seen_});
  const std::int64_t q = 0;
  run({.q = {&q, 1}}, 1);
  EXPECT_THAT(
      [&] { (void)run.poison_reason(0, 0); },
      ThrowsMessage<base::InternalError>(HasSubstr("poison_reason: output 0 is sound at point 0")));
}

TEST_F(Poison, PointByPointAndForgottenByTheNextRun) {
  Interpreter<double> run(parse("seen[q], q", poison_captures), {seen_});
  const std::vector<std::int64_t> mixed{3, 4, -1, 0};
  run({.q = mixed}, 4);
  EXPECT_THAT(run.poison(0), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(run.booleans(0), ElementsAre(1, 0, 0, 0));
  EXPECT_TRUE(run.poison(1).empty());
  EXPECT_EQ(run.poison_reason(0, 1), "seen: index 4 along dimension 0 is outside its length 4");
  const std::vector<std::int64_t> inside{1, 2};
  run({.q = inside}, 2);
  EXPECT_TRUE(run.poison(0).empty());
}

TEST_F(Poison, AnEmptyBufferIsNeverRead) {
  const Graph graph = parse("x[q]", std::vector<Slot>{{"x", DType::f32, 1}});
  EXPECT_EQ(evaluate(graph, {}, {ConstView()}).poison,
            "x: index 0 along dimension 0 is outside its length 0");
}

// Random graphs on random memory: nothing is read outside (the sanitizer watches), every poisoned
// point has a reason, and fp32 is poisoned exactly like fp64 where there are no floats.
TEST(PoisonFuzz, EveryPoisonedPointHasAReason) {
  std::int64_t poisoned = 0;
  std::int64_t sound = 0;
  for (int round = 0; round < test::fuzz_count(5000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    const bool mask = test::chance(random, 0.5);
    const Graph graph =
        test::random_graph(random, mask ? test::mask_options() : test::GraphOptions{});
    const test::Captures memory = test::random_captures(random, graph);
    const auto points = test::random_points<float>(random, 16);
    Interpreter<float> run(graph, memory.views);
    run(points.points(), points.count());
    for (std::size_t i = 0; i < run.poison(0).size(); ++i) {
      if (run.poison(0)[i] == 0) {
        ++sound;
        continue;
      }
      ++poisoned;
      ASSERT_NE(run.poison_reason(0, static_cast<std::int64_t>(i)), "") << to_text(graph);
    }
    if (!mask) continue;
    const std::vector<double> scores(points.score.begin(), points.score.end());
    Interpreter<double> wide(graph, memory.views);
    wide({.score = scores, .b = points.b, .h = points.h, .q = points.q, .kv = points.kv},
         points.count());
    ASSERT_THAT(wide.poison(0), testing::ElementsAreArray(run.poison(0)));
    ASSERT_THAT(wide.booleans(0), testing::ElementsAreArray(run.booleans(0)));
  }
  EXPECT_GT(poisoned, 0);
  EXPECT_GT(sound, 0);
}

}  // namespace
}  // namespace treadle::ir
