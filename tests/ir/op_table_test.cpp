// What every row of ops.def says: its name, its text form, its types.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ir/builder.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "treadle/error.h"

namespace treadle::ir {
namespace {

const Slot flag{"flag", DType::boolean, 0};

// Operands of all types and of every shape that the printer treats in its own way.
std::vector<NodeId> operands_to_try(Builder& make) {
  const NodeId score = make.input(Input::score);
  return {score,
          make.input(Input::q),
          make.load(flag, {}),
          make.real(2),
          make.real(-2),
          make.real(-std::numeric_limits<double>::infinity()),
          make.integer(-3),
          make.boolean(true),
          make(Op::neg, score),
          make(Op::pow, score, score)};
}

// Every way to give `arity` operands out of the choices.
std::vector<std::vector<NodeId>> choices(const std::vector<NodeId>& from, int arity) {
  std::vector<std::vector<NodeId>> result{{}};
  for (int i = 0; i < arity; ++i) {
    std::vector<std::vector<NodeId>> longer;
    for (const auto& start : result) {
      for (const NodeId id : from) {
        longer.push_back(start);
        longer.back().push_back(id);
      }
    }
    result = std::move(longer);
  }
  return result;
}

// The node, or -1 when the operation refuses these types.
NodeId try_apply(Builder& make, Op op, std::vector<NodeId> operands) {
  try {
    return make.apply(op, std::move(operands));
  } catch (const Error&) {
    return -1;
  }
}

void expect_round_trip(const Graph& graph) {
  const std::string text = to_text(graph);
  verify(graph);
  ASSERT_EQ(parse(text, graph.slots()), graph) << text;
}

TEST(OpTable, RowsStandInTheOrderOfTheEnum) {
  int index = 0;
  for (const OpInfo& row : op_table()) {
    EXPECT_EQ(static_cast<int>(row.op), index++);
    EXPECT_EQ(&info(row.op), &row);
  }
}

TEST(OpTable, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const OpInfo& row : op_table()) {
    if (row.rule == Rule::leaf) {
      EXPECT_EQ(row.text, "");
      continue;
    }
    EXPECT_TRUE(names.insert(row.text).second) << row.text;
    EXPECT_EQ(find_op(row.text), row.op);
  }
  EXPECT_EQ(find_op(""), std::nullopt);
  EXPECT_EQ(find_op("gelu"), std::nullopt);
}

// The parser tells operations with one infix form apart by arity and by type; more would be too
// many.
TEST(OpTable, InfixFormsAreUniqueForArityAndType) {
  std::set<std::tuple<std::string_view, int, bool>> forms;
  for (const OpInfo& row : op_table()) {
    if (row.infix.empty()) continue;
    EXPECT_TRUE(forms.insert({row.infix, row.arity, row.rule == Rule::logical}).second) << row.text;
  }
}

TEST(OpTable, EveryOperationReadsBackAsItWasPrinted) {
  for (const OpInfo& row : op_table()) {
    if (row.rule == Rule::leaf) continue;
    Builder make;
    const std::vector<NodeId> operands = operands_to_try(make);
    int accepted = 0;
    for (const auto& chosen : choices(operands, row.arity)) {
      const NodeId id = try_apply(make, row.op, chosen);
      if (id < 0) continue;
      ++accepted;
      expect_round_trip(make.finish({id}));
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(accepted, 0) << row.text;
  }
}

// Every operation inside every other, on each side: the brackets are where they must be.
TEST(OpTable, EveryOperationReadsBackInsideEveryOther) {
  for (const OpInfo& outer : op_table()) {
    for (const OpInfo& inner : op_table()) {
      if (outer.rule == Rule::leaf || inner.rule == Rule::leaf) continue;
      Builder make;
      const NodeId score = make.input(Input::score);
      const NodeId q = make.input(Input::q);
      const NodeId yes = make.load(flag, {});
      for (const auto& inside : choices({score, q, yes}, inner.arity)) {
        const NodeId nested = try_apply(make, inner.op, inside);
        if (nested < 0) continue;
        for (const auto& outside : choices({nested, q, yes}, outer.arity)) {
          const NodeId id = try_apply(make, outer.op, outside);
          if (id < 0) continue;
          expect_round_trip(make.finish({id}));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(OpTable, ResultTypesFollowTheRule) {
  for (const OpInfo& row : op_table()) {
    if (row.rule == Rule::leaf) continue;
    Builder make;
    const auto result = [&](NodeId operand, int first_bool = 0) {
      std::vector<NodeId> operands(static_cast<std::size_t>(row.arity), operand);
      for (int i = 0; i < first_bool; ++i)
        operands[static_cast<std::size_t>(i)] = make.load(flag, {});
      const NodeId id = try_apply(make, row.op, operands);
      return id < 0 ? std::string("refused") : std::string(name_of(make.type(id)));
    };
    const int first_bool = row.rule == Rule::choice ? 1 : 0;
    const std::vector<std::string> seen{result(make.input(Input::score), first_bool),
                                        result(make.input(Input::q), first_bool),
                                        result(make.load(flag, {}), first_bool)};
    const std::vector<std::string> expected = [&]() -> std::vector<std::string> {
      switch (row.rule) {
        case Rule::leaf: return {};
        case Rule::arithmetic: return {"float", "int", "int"};
        case Rule::real: return {"float", "float", "float"};
        case Rule::rounding: return {"float", "int", "int"};
        case Rule::integer: return {"refused", "int", "int"};
        case Rule::comparison: return {"bool", "bool", "bool"};
        case Rule::logical: return {"refused", "refused", "bool"};
        case Rule::test: return {"bool", "bool", "bool"};
        case Rule::choice: return {"float", "int", "bool"};
        case Rule::conversion: return std::vector<std::string>(3, std::string(row.text));
      }
      return {};
    }();
    EXPECT_EQ(seen, expected) << row.text;
  }
}

TEST(OpTable, TypesOfElements) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    EXPECT_EQ(type_of(dtype), Type::real);
  }
  for (const DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}) {
    EXPECT_EQ(type_of(dtype), Type::integer);
  }
  EXPECT_EQ(type_of(DType::boolean), Type::boolean);
}

}  // namespace
}  // namespace treadle::ir
