// Every operation of the table, of operands that are vectors, scalars or both, over ordinary and
// extreme values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <limits>
#include <map>
#include <utility>

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
class OperandValues {
 public:
  OperandValues(Type type, const Integers& integers) {
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

  bool operator==(const Case&) const = default;
};

// Where operand 0, 1 and 2 come from; each row is an output for every operation.
constexpr std::array<std::array<int, 3>, 6> ways{{{of_q, of_kv, of_both},
                                                  {of_kv, of_q, of_h},
                                                  {of_both, of_h, of_q},
                                                  {of_h, of_both, of_kv},
                                                  {of_kv, of_h, of_kv},
                                                  {of_h, of_h, of_h}}};

using Operations = std::vector<ir::OpInfo>;

// What operations are applied to, and the tile on which they are compared.
struct Bench {
  OperandValues operands, conditions;
  Tile tile{.h = 5};

  Bench(const Case& which, std::int64_t width)
      : operands(which.type, *which.integers), conditions(Type::boolean, *which.integers) {
    for (int i = 0; i < width; ++i) tile.q.push_back(i + 3);
    for (int i = 0; i < operands.length; ++i) tile.keys.push_back(i);
  }

  [[nodiscard]] ir::Graph graph_of(const Operations& rows) const {
    ir::Builder make;
    std::vector<NodeId> outputs;
    for (const ir::OpInfo& row : rows) {
      for (const auto& way : ways) {
        std::vector<NodeId> in;
        for (int i = 0; i < row.arity; ++i) {
          const bool condition = row.op == Op::where && i == 0;
          in.push_back((condition ? conditions : operands)
                           .operand(make, i, way[static_cast<std::size_t>(i)]));
        }
        outputs.push_back(make.apply(row.op, in));
      }
    }
    return make.finish(outputs);
  }

  [[nodiscard]] std::vector<ConstView> views_of(const ir::Graph& graph) const {
    std::vector<ConstView> views;
    for (const ir::Slot& slot : graph.slots()) {
      views.push_back((slot.dtype == operands.view().dtype() ? operands : conditions).view());
    }
    return views;
  }
};

void expect_agreement_of(const Operations& rows, const Bench& bench, Setting setting) {
  const ir::Graph graph = bench.graph_of(rows);
  const std::vector<ConstView> views = bench.views_of(graph);
  setting.facts = facts_of(graph, bench.tile, views);
  expect_agreement(graph, setting, bench.tile, views);
  if (setting.facts.narrow && setting.real == DType::f32) {  // again with everything left open
    setting.facts = {.unit_stride = setting.facts.unit_stride};
    expect_agreement(graph, setting, bench.tile, views);
  }
}

// Making kernels takes most of the time, so operations about which the same is known (integers
// narrow, reads checked) share one. Beyond eight, a kernel takes longer than its parts.
void check(const Operations& rows, const Case& which, const plan::Target& target, DType real) {
  constexpr std::size_t most = 8;
  const Setting setting{.target = target, .real = real};
  const Bench bench(which, setting.width());
  std::map<std::pair<bool, bool>, Operations> alike;
  for (const ir::OpInfo& row : rows) {
    const ir::Graph graph = bench.graph_of({row});
    const plan::ModFacts facts = facts_of(graph, bench.tile, bench.views_of(graph));
    Operations& group = alike[{facts.narrow, facts.reads == plan::Reads::checked}];
    group.push_back(row);
    if (group.size() == most) expect_agreement_of(std::exchange(group, {}), bench, setting);
  }
  for (const auto& [known, group] : alike) {
    if (!group.empty()) expect_agreement_of(group, bench, setting);
  }
}

const std::array all_cases{Case{Type::real, &wide},    Case{Type::boolean, &wide},
                           Case{Type::integer, &wide}, Case{Type::integer, &narrow},
                           Case{Type::integer, &far},  Case{Type::integer, &few}};

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

// Kernels take long to make: all operations on all targets when every round of random tests is run,
// else each on one of them, and when in a hurry a sixth of them on each. Which ones goes by the seed.
bool is_checked(const ir::OpInfo& row, const plan::Target& target) {
  const auto number = static_cast<std::uint64_t>(row.op);
  if (fuzz_small()) return (number + fuzz_seed(0)) % 6 == 0;
  const std::vector<plan::Target> targets = targets_in_turn(number);
  return std::ranges::find(targets, target) != targets.end();
}

class EmitOp : public testing::TestWithParam<plan::Target> {};

TEST_P(EmitOp, DoesWhatTheInterpreterDoes) {
  std::cout << seed_text(fuzz_seed(0)) << '\n';
  SCOPED_TRACE(seed_text(fuzz_seed(0)));
  std::size_t checked = 0;
  std::size_t expected = 0;
  for (const ir::OpInfo& row : ir::op_table()) expected += cases_of(row).size();
  for (const Case& which : all_cases) {
    Operations rows, of_floats;
    for (const ir::OpInfo& row : ir::op_table()) {
      const std::vector<Case> cases = cases_of(row);
      if (std::ranges::find(cases, which) == cases.end()) continue;
      ++checked;
      if (!is_checked(row, GetParam())) continue;
      rows.push_back(row);
      if (which.type == Type::real || row.rule == ir::Rule::conversion) of_floats.push_back(row);
    }
    check(rows, which, GetParam(), DType::f32);
    check(of_floats, which, GetParam(), DType::f64);
    if (HasFailure()) return;
  }
  EXPECT_EQ(checked, expected) << "a case of cases_of() is not among all_cases";
}

INSTANTIATE_TEST_SUITE_P(Targets, EmitOp, testing::ValuesIn(targets_here()), name_of_target);

}  // namespace
}  // namespace treadle::test
