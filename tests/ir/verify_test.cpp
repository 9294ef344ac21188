// Illegal graphs, one rule broken at a time.
#include "ir/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/parse.h"

namespace treadle::ir {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const Node score{.op = Op::input, .type = Type::real, .input = Input::score, .operands = {}};
const Node q{.op = Op::input, .type = Type::integer, .input = Input::q, .operands = {}};
const Node kv{.op = Op::input, .type = Type::integer, .input = Input::kv, .operands = {}};
const Node zero{.op = Op::constant, .type = Type::integer, .bits = 0, .operands = {}};
const Slot slope_slot{"slopes", DType::f32, 1};

Node node(Op op, Type type, std::vector<NodeId> operands) {
  return {.op = op, .type = type, .operands = std::move(operands)};
}
Node load(std::int32_t slot, std::vector<NodeId> operands) {
  return {.op = Op::load, .type = Type::real, .slot = slot, .operands = std::move(operands)};
}

void expect_illegal(const std::string& message, std::vector<Node> nodes,
                    std::vector<Slot> slots = {}, std::vector<NodeId> outputs = {}) {
  if (outputs.empty()) outputs = {static_cast<NodeId>(nodes.size()) - 1};
  const Graph graph(std::move(nodes), std::move(slots), std::move(outputs));
  // The message ends with the graph.
  EXPECT_THAT([&] { verify(graph); },
              ThrowsMessage<base::InternalError>(
                  AllOf(HasSubstr("verify: " + message + "\n"), HasSubstr("\noutputs %"))));
}

TEST(Verify, LegalGraphsPass) {
  verify(
      parse("where(q >= kv, score + slopes[h] * (kv - q), -inf)", std::vector<Slot>{slope_slot}));
  verify(parse("nan, q, q // 3, !bool(score)", {}));
}

TEST(Verify, OperandsComeFirst) {
  const std::string message = "an operand does not come before its user";
  expect_illegal("node %0: " + message, {node(Op::neg, Type::integer, {0})});
  expect_illegal("node %0: " + message, {node(Op::neg, Type::integer, {1}), q}, {}, {0, 1});
  expect_illegal("node %1: " + message, {q, node(Op::neg, Type::integer, {-1})});
  expect_illegal("node %1: " + message, {q, node(Op::neg, Type::integer, {7})});
}

TEST(Verify, NumbersOfOperands) {
  expect_illegal("node %1: wrong number of operands", {q, node(Op::add, Type::integer, {0})});
  expect_illegal("node %1: wrong number of operands", {q, node(Op::neg, Type::integer, {0, 0})});
  expect_illegal("node %1: wrong number of operands", {q, node(Op::input, Type::real, {0})});
}

TEST(Verify, Types) {
  const std::string message = "operand or result types break the rule of the operation";
  const auto expect_wrong = [&](std::vector<Node> nodes) {
    const std::string id = std::to_string(nodes.size() - 1);
    std::vector<NodeId> outputs(nodes.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = static_cast<NodeId>(i);
    expect_illegal("node %" + id + ": " + message, std::move(nodes), {}, outputs);
  };
  const Node yes{.op = Op::constant, .type = Type::boolean, .bits = 1, .operands = {}};
  expect_wrong({score, q, node(Op::add, Type::real, {0, 1})});
  expect_wrong({q, node(Op::add, Type::real, {0, 0})});
  expect_wrong({yes, node(Op::add, Type::boolean, {0, 0})});
  expect_wrong({q, node(Op::exp, Type::real, {0})});
  expect_wrong({q, node(Op::floor, Type::integer, {0})});
  expect_wrong({score, node(Op::mod, Type::integer, {0, 0})});
  expect_wrong({score, q, node(Op::lt, Type::boolean, {0, 1})});
  expect_wrong({yes, node(Op::lt, Type::boolean, {0, 0})});
  expect_wrong({q, node(Op::lt, Type::integer, {0, 0})});
  expect_wrong({q, node(Op::logical_not, Type::boolean, {0})});
  expect_wrong({q, node(Op::isnan, Type::boolean, {0})});
  expect_wrong({q, node(Op::where, Type::integer, {0, 0, 0})});
  expect_wrong({yes, q, score, node(Op::where, Type::real, {0, 1, 2})});
  expect_wrong({q, node(Op::to_int, Type::integer, {0})});
  expect_wrong({q, node(Op::to_float, Type::integer, {0})});
  expect_wrong({{.op = Op::input, .type = Type::real, .input = Input::q, .operands = {}}});
  expect_wrong({{.op = Op::constant, .type = Type::boolean, .bits = 2, .operands = {}}});
}

TEST(Verify, ThereIsOneNan) {
  expect_illegal(
      "node %0: operand or result types break the rule of the operation",
      {{.op = Op::constant, .type = Type::real, .bits = 0x7FF8000000000001u, .operands = {}}});
}

TEST(Verify, FieldsOfOtherOperations) {
  const std::string message =
      "node %0: holds a slot, a value or an input that its operation does not have";
  expect_illegal(message, {{.op = Op::input, .type = Type::real, .slot = 0, .operands = {}}},
                 {slope_slot});
  expect_illegal(message, {{.op = Op::input, .type = Type::real, .bits = 1, .operands = {}}});
  expect_illegal(message,
                 {{.op = Op::constant, .type = Type::integer, .input = Input::q, .operands = {}}});
}

TEST(Verify, Loads) {
  expect_illegal("node %1: a load of a slot that is not there", {q, load(1, {0})}, {slope_slot});
  expect_illegal("node %1: a load of a slot that is not there", {q, load(-1, {0})}, {slope_slot});
  expect_illegal("node %1: a load with another rank than its slot", {q, load(0, {0, 0})},
                 {slope_slot});
  expect_illegal("node %1: operand or result types break the rule of the operation",
                 {score, load(0, {0})}, {slope_slot});
  expect_illegal("node %1: operand or result types break the rule of the operation",
                 {q, load(0, {0})}, {{"slopes", DType::i32, 1}});
}

TEST(Verify, DivisionByTheConstantZero) {
  expect_illegal("node %2: division by the constant 0",
                 {q, zero, node(Op::floor_div, Type::integer, {0, 1})});
  expect_illegal("node %2: division by the constant 0",
                 {q, zero, node(Op::mod, Type::integer, {0, 1})});
}

TEST(Verify, Outputs) {
  expect_illegal("an output that is not there", {q}, {}, {1});
  expect_illegal("an output that is not there", {q}, {}, {-1});
  EXPECT_THAT([] { verify(Graph()); },
              ThrowsMessage<base::InternalError>(HasSubstr("verify: no outputs")));
}

TEST(Verify, EveryNodeIsNeeded) {
  expect_illegal("node %0: no output needs it", {q, kv});
  expect_illegal("node %1: no output needs it", {q, node(Op::neg, Type::integer, {0})}, {}, {0});
}

TEST(Verify, NoNodeStandsTwice) {
  expect_illegal("node %1: the same node stands twice",
                 {q, q, node(Op::add, Type::integer, {0, 1})});
}

TEST(Verify, Slots) {
  const Slot other{"other", DType::f32, 1};
  expect_illegal("two slots have one name", {q, load(0, {0}), load(1, {0})},
                 {slope_slot, slope_slot}, {1, 2});
  expect_illegal("a slot that no node reads", {q, load(0, {0})}, {slope_slot, other});
  expect_illegal("node %1: reads a slot before the slots that stand in front of it",
                 {q, load(1, {0}), load(0, {0})}, {slope_slot, other}, {1, 2});
}

}  // namespace
}  // namespace treadle::ir
