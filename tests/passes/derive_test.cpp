// Derivatives against finite differences, ties as documented, where() as a switch for gradients.
#include "passes/derive.h"

#include <gtest/gtest.h>

#include <cmath>

#include "evaluate.h"
#include "expect_error.h"
#include "fuzz.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::passes {
namespace {

using ir::Op;
using test::evaluate;
using test::Point;

const std::vector<ir::Slot> derive_captures{{"table", DType::f64, 1},
                                            {"gate", DType::f32, 1},
                                            {"bias", DType::f32, 2},
                                            {"zero", DType::f64, 0},
                                            {"ids", DType::i64, 1}};

ir::Joint derived(std::string_view text, const std::vector<std::string>& wanted = {}) {
  return derive(ir::parse(text, derive_captures), wanted);
}

double derivative(std::string_view text, double score) {
  return evaluate(derived(text).graph, {.score = score, .grad = 1}).real;
}

// Points at which every operation on floats is defined and smooth, for its first operand.
struct Place {
  double x, y;
};

Place smooth_place(Op op) {
  switch (op) {
    case Op::asin:
    case Op::acos: return {0.3, 0};
    case Op::log:
    case Op::log2:
    case Op::log1p:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::pow: return {1.7, 2.3};
    case Op::clamp: return {0.4, -1.0};
    default: return {0.6, 1.9};
  }
}

TEST(Derive, EveryDerivativeOfTheTableIsTheFiniteDifference) {
  int covered = 0;
  for (const ir::OpInfo& row : ir::op_table()) {
    const bool on_floats = row.rule == ir::Rule::arithmetic || row.rule == ir::Rule::real ||
                           row.rule == ir::Rule::rounding;
    if (!on_floats) continue;
    const Place place = smooth_place(row.op);
    // The score stands in each operand's place in turn, numbers in the others.
    for (int at = 0; at < row.arity; ++at) {
      std::string text = std::string(row.text) + "(";
      for (int i = 0; i < row.arity; ++i) {
        const double number = i == 0 ? place.x : i == 1 ? place.y : 2.5;
        text += (i > 0 ? ", " : "") + (i == at ? std::string("score") : std::to_string(number));
      }
      text += ")";
      const double here = at == 0 ? place.x : at == 1 ? place.y : 2.5;
      const ir::Graph graph = ir::parse(text, {});
      const double step = 1e-6;
      const double up = evaluate(graph, {.score = here + step}).real;
      const double down = evaluate(graph, {.score = here - step}).real;
      EXPECT_NEAR(derivative(text, here), (up - down) / (2 * step), 1e-7) << text << " at " << here;
      ++covered;
    }
  }
  EXPECT_GE(covered, 40);
}

TEST(Derive, TiesAreThoseOfPyTorch) {
  EXPECT_EQ(derivative("max(score, 1.0)", 1.0), 0.5);
  EXPECT_EQ(derivative("min(score, 1.0)", 1.0), 0.5);
  EXPECT_EQ(derivative("max(score, 1.0)", 2.0), 1.0);
  EXPECT_EQ(derivative("max(score, 1.0)", 0.0), 0.0);
  EXPECT_EQ(derivative("max(score, score)", 3.0), 1.0);
  EXPECT_EQ(derivative("clamp(score, -1.0, 1.0)", 1.0), 1.0);
  EXPECT_EQ(derivative("clamp(score, -1.0, 1.0)", -1.0), 1.0);
  EXPECT_EQ(derivative("clamp(score, -1.0, 1.0)", 1.5), 0.0);
  EXPECT_EQ(derivative("clamp(2.0, score, 3.0)", 2.5), 1.0);
  EXPECT_EQ(derivative("clamp(2.0, 3.0, score)", 2.5), 1.0);
  EXPECT_EQ(derivative("abs(score)", 0.0), 0.0);
  EXPECT_EQ(derivative("sign(score)", 0.0), 0.0);
  EXPECT_EQ(derivative("pow(score, 0.0)", 0.0), 0.0);
  EXPECT_EQ(derivative("pow(0.0, score)", 2.0), 0.0);
  EXPECT_EQ(derivative("atan2(score, 0.0)", 0.0), 0.0);
  EXPECT_EQ(derivative("floor(score) + round(score)", 0.3), 0.0);
}

TEST(Derive, TextOfCommonMods) {
  EXPECT_EQ(ir::to_text(derived("score")), "dscore = grad\n");
  EXPECT_EQ(ir::to_text(derived("score * 2")), "dscore = grad * 2.0\n");
  EXPECT_EQ(ir::to_text(derived("score + gate[h]", {"gate"})), "dscore = grad\ngate[h] += grad\n");
  EXPECT_EQ(ir::to_text(derived("score * gate[h]", {"gate"})),
            "dscore = grad * gate[h]\ngate[h] += grad * score\n");
  EXPECT_EQ(ir::to_text(derived("score * gate[h]")), "dscore = grad * gate[h]\n");
  EXPECT_EQ(ir::to_text(derived("score + zero", {"zero"})), "dscore = grad\nzero += grad\n");
  EXPECT_EQ(ir::to_text(derived("score + table[ids[q]]", {"table"})),
            "dscore = grad\ntable[ids[q]] += grad\n");
}

TEST(Derive, ModsThatDoNotDependOnTheScore) {
  EXPECT_EQ(ir::to_text(derived("1.0")), "dscore = 0.0\n");
  EXPECT_EQ(ir::to_text(derived("float(q - kv)")), "dscore = 0.0\n");
  EXPECT_EQ(ir::to_text(derived("floor(score)")), "dscore = 0.0\n");
  EXPECT_EQ(ir::to_text(derived("gate[h]", {"gate"})), "dscore = 0.0\ngate[h] += grad\n");
}

TEST(Derive, TheSameBufferUsedTwiceContributesTwice) {
  const ir::Joint joint = derived("score + bias[q, kv] + bias[kv, q]", {"bias"});
  ASSERT_EQ(joint.contributions.size(), 2u);
  EXPECT_EQ(ir::to_text(joint), "dscore = grad\nbias[q, kv] += grad\nbias[kv, q] += grad\n");
}

TEST(Derive, OnlyTheChosenSideOfWhereContributes) {
  // The derivative of sqrt at 0 is infinite and 0 * inf is NaN, but that side was not chosen.
  EXPECT_EQ(derivative("where(score > 0.0, sqrt(score), 3.0 * score)", 0.0), 3.0);
  EXPECT_EQ(derivative("where(score > 0.0, log(score), 0.0)", -1.0), 0.0);
  EXPECT_EQ(
      derivative("where(score > 0.0, where(score > 1.0, score * score, score), 5.0 * score)", 2.0),
      4.0);
  EXPECT_EQ(
      derivative("where(score > 0.0, where(score > 1.0, score * score, score), 5.0 * score)", 0.5),
      1.0);
  EXPECT_EQ(
      derivative("where(score > 0.0, where(score > 1.0, score * score, score), 5.0 * score)", -1),
      5.0);
}

TEST(Derive, AReadThatWasNotChosenDoesNotPoison) {
  const ir::Joint joint = derived("where(h < 2, score * table[h], score)", {"table"});
  std::vector<double> data{3, 4};
  const ConstView table(data.data(), {2});
  const auto inside = evaluate(joint.graph, {.score = 5, .grad = 1, .h = 1}, {table});
  const auto outside = evaluate(joint.graph, {.score = 5, .grad = 1, .h = 9}, {table});
  EXPECT_EQ(inside.real, 4);
  EXPECT_EQ(outside.poison, "");
  EXPECT_EQ(outside.real, 1);
  EXPECT_EQ(ir::to_text(joint),
            "t0 = h < 2;\n"
            "dscore = where(t0, grad * table[h], grad)\n"
            "table[h] += grad * score   where t0\n");
}

TEST(Derive, RefusesCapturesWithoutAGradient) {
  EXPECT_ERROR(derived("score", {"table"}), "gradients: the score mod reads no capture \"table\"");
  EXPECT_ERROR(derived("score + float(ids[q])", {"ids"}),
               "gradients: capture \"ids\" holds i64; only floats have gradients");
}

// Whether all floats on the way are numbers whose rounding a difference of values does not show: not
// large, and not next to the pole of log1p. A chain of derivatives through an infinity may even be
// NaN where the value is constant: erf(inf * score).
bool is_ordinary_throughout(const ir::Graph& graph, const Point& at,
                            const std::vector<ConstView>& views) {
  std::vector<ir::NodeId> floats;
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].type == ir::Type::real) floats.push_back(id);
  const ir::Graph all({graph.nodes().begin(), graph.nodes().end()},
                      {graph.slots().begin(), graph.slots().end()}, floats);
  ir::Interpreter<double> run(all, views);
  run({.score = {&at.score, 1},
       .grad = {&at.grad, 1},
       .b = {&at.b, 1},
       .h = {&at.h, 1},
       .q = {&at.q, 1},
       .kv = {&at.kv, 1}},
      1);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const double value = run.reals(static_cast<int>(i))[0];
    const double lowest = graph[floats[i]].op == Op::log1p ? -4 : -1e4;
    if (!(value > lowest && value < 1e4)) return false;
  }
  return true;
}

TEST(Derive, ThroughAnInfinityIsNan) {
  EXPECT_TRUE(std::isnan(derivative("erf(log1p(-1.0) * score * log1p(-1.0))", 0.5)));
}

// Smooth operations and ordinary numbers, so that a difference of values is a derivative.
TEST(Derive, RandomModsAgreeWithFiniteDifferences) {
  const auto smooth = [](Op op) {
    return op == Op::add || op == Op::sub || op == Op::mul || op == Op::neg || op == Op::tanh ||
           op == Op::sigmoid || op == Op::sin || op == Op::cos || op == Op::erf || op == Op::atan ||
           op == Op::where || op == Op::load || op == Op::lt || op == Op::to_float ||
           op == Op::log1p || op == Op::exp || op == Op::max || op == Op::abs;
  };
  int compared = 0;
  for (int round = 0; round < test::fuzz_count(4000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    test::GraphOptions options;
    options.special_constants = false;
    options.may_poison = false;
    options.operations = static_cast<int>(3 + seed % 10);
    options.allow = smooth;
    options.slots = test::slots_of({DType::f64, DType::i64});
    const ir::Graph graph = test::random_graph(random, options);
    const ir::Joint joint = derive(graph, {});
    const auto memory = test::random_captures(
        random, graph, {.shortest = 16, .longest = 16, .special_values = false});
    const auto views_of = [&](const ir::Graph& part) {
      std::vector<ConstView> views;
      for (const ir::Slot& slot : part.slots()) {
        views.push_back(memory.views[static_cast<std::size_t>(graph.find_slot(slot.name) -
                                                              graph.slots().data())]);
      }
      return views;
    };
    for (int i = 0; i < 4; ++i) {
      Point at{.score = test::random_real(random, -2, 2),
               .grad = 1,
               .b = 1,
               .h = 2,
               .q = 3,
               .kv = test::random_int(random, 0, 9)};
      const double got = evaluate(joint.graph, at, views_of(joint.graph)).real;
      const auto value = [&](double score) {
        Point there = at;
        there.score = score;
        return evaluate(graph, there, views_of(graph)).real;
      };
      const double step = 1e-5;
      const double coarse = (value(at.score + step) - value(at.score - step)) / (2 * step);
      const double fine = (value(at.score + step / 2) - value(at.score - step / 2)) / step;
      // Near a kink of max, abs or where the two differences disagree and say nothing about the
      // derivative.
      if (!(std::fabs(coarse) < 1e3) ||
          std::fabs(coarse - fine) > 1e-6 * std::max(1.0, std::fabs(fine)))
        continue;
      if (!is_ordinary_throughout(graph, at, views_of(graph))) continue;
      ++compared;
      ASSERT_NEAR(got, fine, 1e-5 * std::max(1.0, std::fabs(fine))) << ir::to_text(graph) << "\n"
                                                                    << ir::to_text(joint);
    }
  }
  EXPECT_GE(compared, test::fuzz_at_least(8000));
}

}  // namespace
}  // namespace treadle::passes
