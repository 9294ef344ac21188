// Mods for a processor that is not here, in an emulator.
#include <gtest/gtest.h>

#include "agreement.h"
#include "emulator.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "treadle/tensor.h"

namespace treadle::test {
namespace {

using ir::Input;
using ir::NodeId;
using ir::Op;
using ir::Rule;

Tile tile_of(int queries, int keys) {
  Tile tile{.b = 1, .h = 2};
  for (int i = 0; i < queries; ++i) tile.q.push_back(i + 1);
  for (int i = 0; i < keys; ++i) tile.keys.push_back(i < keys / 2 ? i : 2 * i);
  for (int i = 0; i < tile.pairs(); ++i) {
    tile.score.push_back(static_cast<float>(0.37 * (i % 101) - 15));
    tile.grad.push_back(static_cast<float>(0.01 * (i % 17)));
  }
  return tile;
}

// What is no call to the C library there.
bool is_inline(const ir::OpInfo& row) {
  switch (row.op) {
    case Op::div:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::exp:
    case Op::exp2:
    case Op::tanh:
    case Op::sigmoid: return true;
    default: return row.rule != Rule::leaf && row.rule != Rule::real;
  }
}

TEST(Foreign, OperationsAgree) {
  if (!Emulator::is_here()) GTEST_SKIP() << "there is no emulator";
  ir::Builder make;
  const NodeId score = make.input(Input::score);
  const NodeId integer =
      make(Op::sub, make(Op::mul, make.input(Input::q), make.integer(5)), make.input(Input::kv));
  const NodeId other =
      make(Op::sub, make(Op::mod, make.input(Input::kv), make.integer(9)), make.integer(4));
  std::vector<NodeId> outputs;
  for (const ir::OpInfo& row : ir::op_table()) {
    if (!is_inline(row)) continue;
    const NodeId truth = make(Op::lt, integer, other);
    for (const bool reals : {false, true}) {
      const bool real_only =
          row.rule == Rule::real || row.rule == Rule::rounding || row.rule == Rule::test;
      if (real_only && !reals) continue;
      if (reals &&
          (row.rule == Rule::integer || row.rule == Rule::logical || row.op == Op::to_float))
        continue;
      std::vector<NodeId> in;
      for (int i = 0; i < row.arity; ++i) {
        const NodeId first = reals ? score : integer;
        const NodeId second = reals ? make(Op::mul, make.input(Input::grad), make.real(40)) : other;
        in.push_back(i == 0 ? first : second);
        if (row.rule == Rule::logical)
          in.back() = i == 0 ? truth : make(Op::eq, integer, make.integer(3));
      }
      if (row.rule == Rule::choice) in[0] = truth;
      outputs.push_back(make.apply(row.op, in));
    }
  }
  const ir::Graph graph = make.finish(outputs);
  for (const bool narrow : {true, false}) {
    Setting setting{.target = plan::find_target("aarch64"), .vectors = 2};
    setting.facts = {.narrow = narrow, .reads = plan::Reads::checked};
    expect_agreement(graph, setting, tile_of(7, 19), {});
  }
}

TEST(Foreign, ReadsAgree) {
  if (!Emulator::is_here()) GTEST_SKIP() << "there is no emulator";
  Tensor bias(DType::bf16, {12, 40}), table(DType::f16, {52}), seen(DType::boolean, {12, 40}),
      order(DType::i64, {12}), small(DType::e4m3, {52}), tiny(DType::e5m2, {52});
  for (std::size_t i = 0; i < 480; ++i) {
    bias.data<bf16>()[i] = bf16(static_cast<float>(i) - 99.5F);
    seen.data<bool>()[i] = i % 3 == 0;
  }
  for (std::size_t i = 0; i < 52; ++i) {
    table.data<f16>()[i] = f16(0.3F * static_cast<float>(i));
    small.data<e4m3>()[i].bits = static_cast<std::uint8_t>(5 * i);  // subnormal ones, too
    tiny.data<e5m2>()[i].bits = static_cast<std::uint8_t>(i < 26 ? i : 128 + i);
  }
  for (std::size_t i = 0; i < 12; ++i)
    order.data<std::int64_t>()[i] = static_cast<std::int64_t>(i * 5 % 12);
  const std::vector<ir::Slot> slots{{"bias", DType::bf16, 2},    {"table", DType::f16, 1},
                                    {"seen", DType::boolean, 2}, {"order", DType::i64, 1},
                                    {"small", DType::e4m3, 1},   {"tiny", DType::e5m2, 1}};
  const ir::Graph graph = ir::parse(
      "where(seen[q, kv], bias[q, kv] + table[kv - q + 11], bias[order[q], kv] - table[q])"
      " + small[kv] + tiny[q]",
      slots);
  std::vector<ConstView> views;
  for (const ir::Slot& slot : graph.slots()) {
    views.push_back(slot.name == "bias"    ? bias
                    : slot.name == "table" ? table
                    : slot.name == "seen"  ? seen
                    : slot.name == "small" ? small
                    : slot.name == "tiny"  ? tiny
                                           : order);
  }
  const Tile tile = tile_of(7, 19);
  Setting setting{
      .target = plan::find_target("aarch64"), .facts = facts_of(graph, tile, views), .vectors = 2};
  ASSERT_EQ(setting.facts.reads, plan::Reads::proven);
  expect_agreement(graph, setting, tile, views);
  setting.facts.reads = plan::Reads::checked;
  expect_agreement(graph, setting, tile, views);
}

}  // namespace
}  // namespace treadle::test
