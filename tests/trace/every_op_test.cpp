// Every row of ops.def has a C++ spelling, and it means what the text form means.
#include <gtest/gtest.h>

#include <concepts>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/parse.h"
#include "traced.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using ir::Op;

// A case for an operation: what C++ refuses for operands of this type gives nothing.
#define SPELLED(op, expression)               \
  case Op::op:                                \
    if constexpr (requires { expression; }) { \
      return expression;                      \
    } else {                                  \
      return std::nullopt;                    \
    }

// What C++ has an operator for, and where(), whose operands differ in type.
template <class T>
std::optional<Value> with_operator(Op op, T x, T y, Bool c) {
  switch (op) {
    SPELLED(add, x + y)
    SPELLED(sub, x - y)
    SPELLED(mul, x * y)
    SPELLED(neg, -x)
    SPELLED(div, x / y)
    SPELLED(mod, x % y)
    SPELLED(bit_and, x & y)
    SPELLED(bit_or, x | y)
    SPELLED(bit_xor, x ^ y)
    SPELLED(bit_not, ~x)
    SPELLED(shift_left, x << y)
    SPELLED(shift_right, x >> y)
    SPELLED(eq, x == y)
    SPELLED(ne, x != y)
    SPELLED(lt, x < y)
    SPELLED(le, x <= y)
    SPELLED(gt, x > y)
    SPELLED(ge, x >= y)
    SPELLED(logical_and, x && y)
    SPELLED(logical_or, x || y)
    SPELLED(logical_xor, x ^ y)
    SPELLED(logical_not, !x)
    SPELLED(where, where(c, x, y))
    default: return std::nullopt;
  }
}

// Everything else is a function of the operation's name. Leaves are parameters, numbers and
// captures; they have tests of their own.
template <class T>
std::optional<Value> spelled(Op op, T x, T y, T z, Bool c) {
  if (const auto value = with_operator(op, x, y, c)) return value;
  switch (op) {
#define TREADLE_OP(name, text, infix, arity, rule)                    \
  case Op::name:                                                      \
    if constexpr (arity == 1 && requires { name(x); }) {              \
      return name(x);                                                 \
    } else if constexpr (arity == 2 && requires { name(x, y); }) {    \
      return name(x, y);                                              \
    } else if constexpr (arity == 3 && requires { name(x, y, z); }) { \
      return name(x, y, z);                                           \
    } else {                                                          \
      return std::nullopt;                                            \
    }
#include "ir/ops.def"
#undef TREADLE_OP
  }
  return std::nullopt;
}

// The operation as text, between its operands if it may be written so.
std::string text_of(const ir::OpInfo& row, const std::vector<std::string>& operands) {
  const std::string text(row.text);
  const std::string infix(row.infix);
  if (row.op == Op::where) return text + "(q < kv, " + operands[0] + ", " + operands[1] + ")";
  if (!infix.empty() && row.arity == 1) return infix + "(" + operands[0] + ")";
  if (!infix.empty()) return "(" + operands[0] + ") " + infix + " (" + operands[1] + ")";
  std::string list = operands[0];
  for (int i = 1; i < row.arity; ++i) list += ", " + operands[static_cast<std::size_t>(i)];
  return text + "(" + list + ")";
}

// The graph of the text, or nothing when it refuses the types.
std::optional<ir::Graph> parsed(const std::string& text) {
  try {
    return ir::parse(text, {});
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Compares one operation on x, y, z with its text; remembers which operation C++ wrote down.
template <class Make>
void compare(const ir::OpInfo& row, const std::vector<std::string>& operands, Make make,
             std::set<Op>& reached) {
  const auto captures = std::make_shared<trace::CaptureTable>();
  const auto recorder = std::make_shared<trace::Recorder>(captures);
  const auto index = [&](ir::Input input) {
    return Index(Value(recorder, recorder->make().input(input)));
  };
  const Score score(Value(recorder, recorder->make().input(ir::Input::score)));
  const std::optional<Value> value = make(score, index(ir::Input::b), index(ir::Input::h),
                                          index(ir::Input::q), index(ir::Input::kv));
  const std::string text = text_of(row, operands);
  const std::optional<ir::Graph> expected = parsed(text);
  if (value) {
    const ir::Graph graph = recorder->make().finish({value->node()});
    ASSERT_TRUE(expected) << text;
    EXPECT_EQ(graph, *expected) << text << " is not " << ir::to_text(graph);
    reached.insert(graph[graph.output()].op);
  } else {
    // What C++ refuses, the text refuses too, except for the quotient of integers.
    EXPECT_TRUE(!expected || row.op == Op::div) << text;
  }
}

TEST(EveryOp, IsReachableFromCpp) {
  for (const ir::OpInfo& row : ir::op_table()) {
    if (row.rule == ir::Rule::leaf) continue;
    std::set<Op> reached;
    compare(
        row, {"score", "score + 1", "score + 2"},
        [&](Score s, Index, Index, Index q, Index kv) {
          return spelled<Float>(row.op, s, s + 1, s + 2, q < kv);
        },
        reached);
    compare(
        row, {"b", "h", "q"},
        [&](Score, Index b, Index h, Index q, Index kv) {
          return spelled<Index>(row.op, b, h, q, q < kv);
        },
        reached);
    compare(
        row, {"b < h", "h < q", "b < q"},
        [&](Score, Index b, Index h, Index q, Index kv) {
          return spelled<Bool>(row.op, b < h, h < q, b < q, q < kv);
        },
        reached);
    EXPECT_TRUE(reached.contains(row.op)) << row.text << " has no C++ spelling";
  }
}

// A Value, whose type is known when traced, takes every operation that its type takes.
TEST(EveryOp, IsReachableForValues) {
  for (const ir::OpInfo& row : ir::op_table()) {
    if (row.rule == ir::Rule::leaf) continue;
    const bool bools = row.rule == ir::Rule::logical;
    std::set<Op> reached;
    const std::vector<std::string> texts = bools
                                               ? std::vector<std::string>{"b < h", "h < q", "b < q"}
                                               : std::vector<std::string>{"b", "h", "q"};
    compare(
        row, texts,
        [&](Score, Index b, Index h, Index q, Index kv) {
          return bools ? spelled<Value>(row.op, b < h, h < q, b < q, q < kv)
                       : spelled<Value>(row.op, b, h, q, q < kv);
        },
        reached);
    // On integers, conversions to int and roundings change nothing and leave no trace.
    if (row.op != Op::to_int && row.rule != ir::Rule::rounding) {
      EXPECT_TRUE(reached.contains(row.op)) << row.text;
    }
  }
}

}  // namespace
}  // namespace treadle
