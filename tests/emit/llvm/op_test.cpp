// Every operation of the table, of operands that are vectors, scalars or both, over ordinary and
// extreme values.
#include <gtest/gtest.h>

#include <limits>

#include "agreement.h"
#include "fuzz.h"
#include "ir/builder.h"
#include "random_graph.h"
#include "treadle/tensor.h"

namespace treadle::test {
namespace {

using ir::Input;
using ir::NodeId;
using ir::Op;
using ir::Type;

using Integers = std::vector<std::int64_t>;
constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
const Integers wide{0,  1,       -1,         2,        -2,     3,          -3,          7,      -7,
                    12, 31,      32,         33,       63,     64,         65,          -5,     70,
                    99, 1 << 20, 4294967296, -1 << 30, lowest, lowest + 1, highest - 1, highest};
const Integers narrow{0,  1,  -1, 2,  -2, 3,  -3, 5,   7,    -7,    12,     16, 31,
                      32, 40, 63, 64, 65, 70, 99, -99, 1000, 46000, -46000, 8,  -8};
// Shifted by each other they still fit 32 bits.
const Integers few{0, 1, -1, 2, 3, -3, 5, 64, 70, -8};
// Around the largest quotients and where floats of 32 bits no longer hold integers.
const Integers far{2147483647, -2147483647, 2147483646, 16777217, -16777219, 65537,
                   46341,      715827883,   3,          7,        1,         2147483645};

std::vector<double> reals() {
  std::vector<double> values(special_reals.begin(), special_reals.end());
  for (const double x :
       {0.25, -0.75, 0.5, 1.5, 2.5, -2.5, 3.5, 1e-20, 1e9, -3e9, 5e18, -1e30, 7.0, -42.0, 0.1})
    values.push_back(x);
  for (double& x : values) x = static_cast<float>(x);
  return values;
}

enum Way { of_q, of_kv, of_both, of_h };

// Reads of one buffer at an index of q, of kv, of both or of neither.
class Operands {
 public:
  Operands(Type type, const Integers& integers) {
    const std::vector<double> numbers = reals();
    length = static_cast<int>(type == Type::real      ? numbers.size()
                              : type == Type::integer ? integers.size()
                                                      : 2);
    dtype_ = type == Type::real ? DType::f64 : type == Type::integer ? DType::i64 : DType::boolean;
    memory_ = Tensor(dtype_, {length});
    for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) {
      if (type == Type::real) memory_.data<double>()[i] = numbers[i];
      if (type == Type::integer) memory_.data<std::int64_t>()[i] = integers[i];
      if (type == Type::boolean) memory_.data<bool>()[i] = i != 0;
    }
  }

  NodeId operand(ir::Builder& make, int number, int way) const {
    const NodeId q = make.input(Input::q);
    const NodeId kv = make.input(Input::kv);
    const NodeId both = make(Op::add, q, make(Op::mul, kv, make.integer(3)));
    const std::array<NodeId, 4> ways{q, kv, make(Op::add, both, make.integer(number)),
                                     make.input(Input::h)};
    const NodeId index = make(Op::mod, ways[static_cast<std::size_t>(way)], make.integer(length));
    return make.load({"x" + std::string(name_of(dtype_)), dtype_, 1}, {index});
  }

  [[nodiscard]] ConstView view() const { return memory_.view(); }

  int length = 0;

 private:
  DType dtype_ = DType::f64;
  Tensor memory_;
};

struct Case {
  Type type;
  const Integers* integers;
};

// Where operand 0, 1 and 2 come from; each row is an output of one graph.
constexpr std::array<std::array<int, 3>, 6> ways{{{of_q, of_kv, of_both},
                                                  {of_kv, of_q, of_h},
                                                  {of_both, of_h, of_q},
                                                  {of_h, of_both, of_kv},
                                                  {of_kv, of_h, of_kv},
                                                  {of_h, of_h, of_h}}};

void check(const ir::OpInfo& row, const Case& which, const plan::Target& target, DType real) {
  SCOPED_TRACE(row.text);
  const Operands operands(which.type, *which.integers);
  const Operands conditions(Type::boolean, *which.integers);
  ir::Builder make;
  std::vector<NodeId> outputs;
  for (const auto& way : ways) {
    std::vector<NodeId> in;
    for (int i = 0; i < row.arity; ++i) {
      const bool condition = row.op == Op::where && i == 0;
      in.push_back(
          (condition ? conditions : operands).operand(make, i, way[static_cast<std::size_t>(i)]));
    }
    outputs.push_back(make.apply(row.op, in));
  }
  const ir::Graph graph = make.finish(outputs);
  std::vector<ConstView> views;
  for (const ir::Slot& slot : graph.slots()) {
    views.push_back((slot.dtype == operands.view().dtype() ? operands : conditions).view());
  }
  Setting setting{.target = target, .real = real};
  Tile tile{.h = 5};
  for (int i = 0; i < setting.width(); ++i) tile.q.push_back(i + 3);
  for (int i = 0; i < operands.length; ++i) tile.keys.push_back(i);
  setting.facts = facts_of(graph, tile, views);
  expect_agreement(graph, setting, tile, views);
  if (setting.facts.narrow && real == DType::f32) {  // again with everything left open
    setting.facts = {.unit_stride = setting.facts.unit_stride};
    expect_agreement(graph, setting, tile, views);
  }
}

std::vector<Case> cases_of(const ir::OpInfo& row) {
  const Case of_reals{Type::real, &wide}, of_bools{Type::boolean, &wide};
  const Case integers{Type::integer, &wide}, small{Type::integer, &narrow},
      large{Type::integer, &far};
  switch (row.rule) {
    case ir::Rule::leaf: return {};
    case ir::Rule::real:
    case ir::Rule::rounding:
    case ir::Rule::test: return {of_reals};
    case ir::Rule::integer: return {integers, small, large, {Type::integer, &few}};
    case ir::Rule::logical: return {of_bools};
    case ir::Rule::arithmetic:
    case ir::Rule::comparison: return {of_reals, integers, small};
    case ir::Rule::choice: return {of_reals, integers, of_bools};
    case ir::Rule::conversion: break;
  }
  // To one's own type is no operation.
  if (row.op == Op::to_float) return {integers, large, of_bools};
  if (row.op == Op::to_int) return {of_reals, of_bools};
  return {of_reals, integers};
}

class EmitOp : public testing::TestWithParam<plan::Target> {};

TEST_P(EmitOp, DoesWhatTheInterpreterDoes) {
  for (const ir::OpInfo& row : ir::op_table()) {
    // Every operation compiles kernels of its own, which takes long; a sixth of them when in a
    // hurry.
    if (fuzz_small() && static_cast<int>(row.op) % 6 != 0) continue;
    for (const Case& which : cases_of(row)) {
      check(row, which, GetParam(), DType::f32);
      const bool of_floats = which.type == Type::real || row.rule == ir::Rule::conversion;
      if (of_floats) check(row, which, GetParam(), DType::f64);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EmitOp, testing::ValuesIn(targets_here()), name_of_target);

}  // namespace
}  // namespace treadle::test
