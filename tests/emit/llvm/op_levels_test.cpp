// One arithmetic per operation: the same operands give the same bits whether an operation is
// computed once per head, per key, per query or per pair, so as a scalar or in a lane, and whatever
// the other lanes hold.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
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

// OperandPairs: ordinary ones, and those where functions change their ways.
std::vector<double> real_operands() {
  std::vector<double> values(special_reals.begin(), special_reals.end());
  for (const double x : {0.1, -0.3, 0.5, 1.5, -2.5, 0.9999, 1.0001, 3.7, -7.0, 11.3, 88.9, -104.0,
                         1e-20, -3e9, 5e18, 709.1, 0.7853981, 2.2e-3})
    values.push_back(static_cast<float>(x));
  return values;
}

const std::vector<std::int64_t> integer_operands{0, 1,  -1, 2,   -2,    3,      -3,    5,    7,  -7,
                                                 8, 12, 31, 64,  65,    99,     -99,   1000, 16, -8,
                                                 6, 9,  63, 255, 30000, -30000, 32767, 10,   11};

// All pairs of operands of a type, by number.
class OperandPairs {
 public:
  explicit OperandPairs(Type type) {
    const std::vector<double> reals = real_operands();
    count_ = static_cast<std::int64_t>(type == Type::real      ? reals.size()
                                       : type == Type::integer ? integer_operands.size()
                                                               : 2);
    dtype_ = type == Type::real ? DType::f64 : type == Type::integer ? DType::i64 : DType::boolean;
    memory_ = Tensor(dtype_, {count_});
    for (std::size_t i = 0; i < static_cast<std::size_t>(count_); ++i) {
      if (type == Type::real) memory_.data<double>()[i] = reals[i];
      if (type == Type::integer) memory_.data<std::int64_t>()[i] = integer_operands[i];
      if (type == Type::boolean) memory_.data<bool>()[i] = i != 0;
    }
  }

  // Operand `which` of the number-th pair.
  NodeId operator()(ir::Builder& make, NodeId number, int which) const {
    const NodeId n = make.integer(count_);
    NodeId index = make(Op::mod, number, n);
    if (which == 1) index = make(Op::mod, make(Op::floor_div, number, n), n);
    if (which == 2) index = make(Op::mod, make(Op::mul, number, make.integer(7)), n);
    return make.load({"x" + std::string(name_of(dtype_)), dtype_, 1}, {index});
  }

  [[nodiscard]] std::int64_t pairs() const { return count_ * count_; }
  [[nodiscard]] ConstView view() const { return memory_.view(); }
  [[nodiscard]] DType dtype() const { return dtype_; }

 private:
  std::int64_t count_ = 0;
  DType dtype_ = DType::f64;
  Tensor memory_;
};

// Where the number of a pair comes from.
enum class OpLevel { head, key, query, pair };

struct NumberedPairs {
  const OperandPairs operands, conditions{Type::boolean};

  [[nodiscard]] ir::Graph graph(const std::vector<ir::OpInfo>& rows, OpLevel level) const {
    ir::Builder make;
    NodeId number = make.input(level == OpLevel::head  ? Input::h
                               : level == OpLevel::key ? Input::kv
                                                       : Input::q);
    if (level == OpLevel::pair) number = make(Op::add, number, make.input(Input::kv));
    std::vector<NodeId> outputs;
    for (const ir::OpInfo& row : rows) {
      std::vector<NodeId> in;
      for (int i = 0; i < row.arity; ++i)
        in.push_back((row.op == Op::where && i == 0 ? conditions : operands)(make, number, i));
      outputs.push_back(make.apply(row.op, in));
      // An integer as a float is no NaN, which min and max make use of.
      const bool is_real = make.type(in[0]) == Type::real;
      if ((row.op != Op::min && row.op != Op::max) || !is_real) continue;
      const NodeId small = make(Op::sub, make(Op::mod, number, make.integer(3)), make.integer(1));
      outputs.push_back(make(row.op, in[0], make(Op::to_float, small)));
      outputs.push_back(make(row.op, make(Op::to_float, small), in[1]));
    }
    return make.finish(outputs);
  }

  [[nodiscard]] std::vector<ConstView> views(const ir::Graph& graph) const {
    std::vector<ConstView> views;
    for (const ir::Slot& slot : graph.slots())
      views.push_back((slot.dtype == operands.dtype() ? operands : conditions).view());
    return views;
  }
};

using ResultBits = std::vector<std::vector<std::uint64_t>>;  // by output, then by pair of operands

void put_bits(ResultBits& bits, const Outcomes& got, std::int64_t from, std::size_t at) {
  for (std::size_t o = 0; o < bits.size(); ++o) {
    const double real = got.reals[o][at];
    // A NaN is a NaN, and what is divided by zero is nothing.
    const bool none = std::isnan(real) || got.poison[o][at] != 0;
    bits[o][static_cast<std::size_t>(from)] =
        none ? ~std::uint64_t{0}
             : std::bit_cast<std::uint64_t>(real) ^ static_cast<std::uint64_t>(got.integers[o][at]);
  }
}

// What every operation makes of every pair of operands, computed at this level.
ResultBits results_at(const std::vector<ir::OpInfo>& rows, const NumberedPairs& numbered,
                      OpLevel level, Setting setting) {
  const ir::Graph graph = numbered.graph(rows, level);
  const std::vector<ConstView> views = numbered.views(graph);
  const auto pairs = static_cast<std::int32_t>(numbered.operands.pairs());
  const ModRunner run(graph, setting);
  ResultBits bits(graph.outputs().size(),
                  std::vector<std::uint64_t>(static_cast<std::size_t>(pairs)));
  const auto width = static_cast<std::int32_t>(setting.width());
  if (level == OpLevel::head) {
    for (std::int32_t n = 0; n < pairs; ++n)
      put_bits(bits, run({.h = n, .q = {0}, .keys = {0}}, views), n, 0);
  } else if (level == OpLevel::key) {
    Tile tile{.q = {0}};
    for (std::int32_t n = 0; n < pairs; ++n) tile.keys.push_back(n);
    const Outcomes got = run(tile, views);
    for (std::int32_t n = 0; n < pairs; ++n) put_bits(bits, got, n, static_cast<std::size_t>(n));
  } else {
    for (std::int32_t first = 0; first < pairs; first += width) {
      Tile tile{.keys = {0}};
      for (std::int32_t n = first; n < std::min(first + width, pairs); ++n) tile.q.push_back(n);
      const Outcomes got = run(tile, views);
      for (std::size_t i = 0; i < tile.q.size(); ++i) put_bits(bits, got, tile.q[i], i);
    }
  }
  return bits;
}

std::vector<Type> operand_types(const ir::OpInfo& row) {
  switch (row.rule) {
    case ir::Rule::leaf: return {};
    case ir::Rule::real:
    case ir::Rule::rounding:
    case ir::Rule::test: return {Type::real};
    case ir::Rule::integer: return {Type::integer};
    case ir::Rule::logical: return {Type::boolean};
    case ir::Rule::arithmetic:
    case ir::Rule::comparison: return {Type::real, Type::integer};
    case ir::Rule::choice: return {Type::real, Type::integer, Type::boolean};
    case ir::Rule::conversion: break;
  }
  if (row.op == Op::to_float) return {Type::integer, Type::boolean};
  return {Type::real};
}

class OpLevels : public testing::TestWithParam<plan::Target> {
 protected:
  static void compare(const std::vector<ir::OpInfo>& rows, Type type, DType real, bool narrow) {
    if (rows.empty()) return;
    const NumberedPairs numbered{OperandPairs(type)};
    const Setting setting{.target = GetParam(), .facts = {.narrow = narrow}, .real = real};
    const ResultBits expected = results_at(rows, numbered, OpLevel::query, setting);
    for (const OpLevel level : {OpLevel::head, OpLevel::key, OpLevel::pair}) {
      const ResultBits got = results_at(rows, numbered, level, setting);
      for (std::size_t o = 0; o < got.size(); ++o) {
        for (std::size_t n = 0; n < got[o].size(); ++n) {
          ASSERT_EQ(got[o][n], expected[o][n])
              << "output " << o << " from " << rows.front().text << " on, of " << ir::name_of(type)
              << " in " << name_of(real) << ", pair " << n << ", level " << static_cast<int>(level);
        }
      }
    }
  }
};

// Those of this type that are looked at in this run. Kernels take long to make: others with every
// seed.
std::vector<ir::OpInfo> operations(Type type, bool floats, bool narrow) {
  std::vector<ir::OpInfo> rows;
  for (const ir::OpInfo& row : ir::op_table()) {
    const std::vector<Type> types = operand_types(row);
    if (std::ranges::find(types, type) == types.end()) continue;
    if (floats && type != Type::real && row.rule != ir::Rule::conversion) continue;
    if (narrow && row.op == Op::shift_left) continue;  // needs more than 32 bits
    const std::uint64_t turn = static_cast<std::uint64_t>(row.op) + fuzz_seed(0);
    if (fuzz_size() == FuzzSize::full || turn % 5 == 0) rows.push_back(row);
  }
  return rows;
}

TEST_P(OpLevels, HaveTheSameBits) {
  constexpr std::size_t most = 6;  // operations in a kernel
  const auto compare_all = [](Type type, DType real, bool narrow) {
    std::vector<ir::OpInfo> rows;
    for (const ir::OpInfo& row : operations(type, real == DType::f64, narrow)) {
      rows.push_back(row);
      if (rows.size() == most) compare(std::exchange(rows, {}), type, real, narrow);
      if (HasFailure()) return;
    }
    compare(rows, type, real, narrow);
  };
  for (const Type type : {Type::real, Type::integer, Type::boolean}) {
    compare_all(type, DType::f32, false);
    compare_all(type, DType::f64, false);  // what has floats in it
    if (type == Type::integer) compare_all(type, DType::f32, true);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, OpLevels, testing::ValuesIn(targets_here()), name_of_target);

}  // namespace
}  // namespace treadle::test
