#include "agreement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/print.h"
#include "treadle/tensor.h"

namespace treadle::test {
namespace {

using ir::NodeId;
using ir::Op;

constexpr double worst_ulps = 4;

struct Points {
  std::vector<std::int64_t> q, kv;
};

Points points_of(const Tile& tile) {
  Points points;
  for (const std::int32_t key : tile.keys) {
    for (const std::int32_t query : tile.q) {
      points.q.push_back(query);
      points.kv.push_back(key);
    }
  }
  return points;
}

// A node alone, its operands read from columns: x0[at0[q]], where at0 is -1 if operand 0 is
// poisoned at that point.
ir::Graph alone(const ir::Graph& graph, NodeId id) {
  ir::Builder make;
  const ir::Node& node = graph[id];
  std::vector<NodeId> operands;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const ir::Type type = graph[node.operands[i]].type;
    const DType dtype = type == ir::Type::real      ? DType::f64
                        : type == ir::Type::integer ? DType::i64
                                                    : DType::boolean;
    const NodeId at =
        make.load({fmt::format("at{}", i), DType::i64, 1}, {make.input(ir::Input::q)});
    operands.push_back(make.load({fmt::format("x{}", i), dtype, 1}, {at}));
  }
  if (node.op == Op::load) {
    ir::Slot slot = graph.slots()[static_cast<std::size_t>(node.slot)];
    slot.name = "memory";
    return make.finish({make.load(slot, operands)});
  }
  return make.finish({make.apply(node.op, operands)});
}

// Columns of operands, in the types that alone() reads.
class Columns {
 public:
  Columns(const ir::Graph& graph, const ir::Graph& single, NodeId id, const Outcomes& got,
          const std::vector<ConstView>& views) {
    const ir::Node& node = graph[id];
    for (const ir::Slot& slot : single.slots()) {
      if (slot.name == "memory") {
        bound.push_back(views[static_cast<std::size_t>(node.slot)]);
        continue;
      }
      const bool at = slot.name.starts_with("at");
      const auto number = static_cast<std::size_t>(std::stoi(slot.name.substr(at ? 2 : 1)));
      const auto operand = static_cast<std::size_t>(node.operands[number]);
      const auto count = static_cast<std::int64_t>(got.poison[operand].size());
      Tensor column(slot.dtype, {count});
      for (std::int64_t i = 0; i < count; ++i) {
        const auto point = static_cast<std::size_t>(i);
        if (at) {
          column.data<std::int64_t>()[point] = got.poison[operand][point] != 0 ? -1 : i;
        } else if (slot.dtype == DType::f64) {
          column.data<double>()[point] = got.reals[operand][point];
        } else if (slot.dtype == DType::i64) {
          column.data<std::int64_t>()[point] = got.integers[operand][point];
        } else {
          column.data<bool>()[point] = got.integers[operand][point] != 0;
        }
      }
      bound.emplace_back(column.view());
      memory.push_back(std::move(column));
    }
  }

  std::vector<ConstView> bound;

 private:
  std::vector<Tensor> memory;
};

template <class F>
void expect_node(const ir::Graph& graph, NodeId id, const Outcomes& got, const Tile& tile,
                 const std::vector<ConstView>& views) {
  const ir::Node& node = graph[id];
  const auto output = static_cast<std::size_t>(id);
  const auto count = static_cast<std::size_t>(tile.pairs());
  const Points points = points_of(tile);
  std::vector<F> score(tile.score.begin(), tile.score.end()),
      grad(tile.grad.begin(), tile.grad.end());
  const std::vector<std::int64_t> b{tile.b}, h{tile.h};

  const bool leaf = node.op == Op::input || node.op == Op::constant;
  ir::Builder make;
  const ir::Graph single = leaf ? make.finish({make.copy(graph, id, {})}) : alone(graph, id);
  const Columns columns(graph, single, id, got, views);
  ir::Interpreter<F> run(single, columns.bound);
  std::vector<std::int64_t> number;
  for (std::size_t i = 0; i < count; ++i) number.push_back(static_cast<std::int64_t>(i));
  run({.score = score,
       .grad = grad,
       .b = b,
       .h = h,
       .q = leaf ? points.q : number,
       .kv = points.kv},
      static_cast<std::int64_t>(count));

  int failures = 0;
  for (std::size_t i = 0; i < count && failures < 3; ++i) {
    const bool poisoned = !run.poison(0).empty() && run.poison(0)[i] != 0;
    std::string wrong;
    if (poisoned != (got.poison[output][i] != 0)) {
      wrong = poisoned ? "should be poisoned" : "should not be poisoned";
    } else if (poisoned) {
      continue;
    } else if (node.type == ir::Type::real) {
      const auto want = static_cast<double>(run.reals(0)[i]);
      const DType real = sizeof(F) == 4 ? DType::f32 : DType::f64;
      if (ulps(got.reals[output][i], want, real) > worst_ulps) {
        wrong = fmt::format("is {}, not {}", got.reals[output][i], want);
      }
    } else {
      const std::int64_t want =
          node.type == ir::Type::integer ? run.integers(0)[i] : std::int64_t{run.booleans(0)[i]};
      if (got.integers[output][i] != want) {
        wrong = fmt::format("is {}, not {}", got.integers[output][i], want);
      }
    }
    if (wrong.empty()) continue;
    ++failures;
    std::string operands;
    for (const NodeId operand : node.operands) {
      const auto at = static_cast<std::size_t>(operand);
      operands += graph[operand].type == ir::Type::real ? fmt::format(" {}", got.reals[at][i])
                                                        : fmt::format(" {}", got.integers[at][i]);
      if (got.poison[at][i] != 0) operands += " (poisoned)";
    }
    ADD_FAILURE() << fmt::format("node {}, {} of{}: {}; at q {}, kv {}", id, ir::info(node.op).text,
                                 operands, wrong, points.q[i], points.kv[i]);
  }
}

Setting whole(Setting setting) {
  setting.pieces.whole = std::numeric_limits<std::int32_t>::max();
  return setting;
}

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

}  // namespace

double ulps(double got, double want, DType real) {
  if (std::isnan(got) || std::isnan(want)) {
    return std::isnan(got) && std::isnan(want) ? 0 : std::numeric_limits<double>::infinity();
  }
  if (got == want) return 0;
  if (std::isinf(got) || std::isinf(want)) {
    // The largest finite number is one step away.
    const double largest =
        real == DType::f32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
    const double finite = std::isinf(got) ? want : got;
    const double infinite = std::isinf(got) ? got : want;
    return finite == std::copysign(largest, infinite) ? 1 : std::numeric_limits<double>::infinity();
  }
  const int digits = real == DType::f32 ? 24 : 53;
  const int lowest = real == DType::f32 ? -125 : -1021;
  int exponent = lowest;
  if (want != 0) std::frexp(want, &exponent);
  return std::ldexp(std::fabs(got - want), digits - std::max(exponent, lowest));
}

ir::Graph every_node(const ir::Graph& graph) {
  std::vector<NodeId> outputs;
  for (NodeId id = 0; id < graph.size(); ++id) outputs.push_back(id);
  return {std::vector(graph.nodes().begin(), graph.nodes().end()),
          std::vector(graph.slots().begin(), graph.slots().end()), outputs};
}

plan::ModFacts facts_of(const ir::Graph& graph, const Tile& tile,
                        const std::vector<ConstView>& views) {
  plan::ModFacts facts{
      .narrow = true, .reads = plan::Reads::proven, .unit_stride = unit_strides(views)};
  const Points points = points_of(tile);
  const std::vector<std::int64_t> b{tile.b}, h{tile.h};
  ir::Interpreter<double> run(every_node(graph), views);
  run({.score = tile.score, .grad = tile.grad, .b = b, .h = h, .q = points.q, .kv = points.kv},
      tile.pairs());
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!run.poison(id).empty()) facts.reads = plan::Reads::checked;
    if (graph[id].type != ir::Type::integer) continue;
    for (const std::int64_t value : run.integers(id)) {
      facts.narrow &= value == static_cast<std::int32_t>(value);
    }
  }
  facts.consecutive = true;
  for (std::size_t i = 1; i < tile.q.size(); ++i)
    facts.consecutive &= tile.q[i] == tile.q[0] + static_cast<int>(i);
  return facts;
}

Agreement::Agreement(const ir::Graph& graph, const Setting& setting)
    : graph_(graph),
      setting_(setting),
      all_(every_node(graph), whole(setting)),
      own_(graph, setting) {}

void Agreement::expect(const Tile& tile, const std::vector<ConstView>& views) const {
  SCOPED_TRACE(to_text(setting_));
  SCOPED_TRACE(ir::to_text(graph_));
  const Outcomes all = all_(tile, views);
  for (NodeId id = 0; id < graph_.size() && !testing::Test::HasFailure(); ++id) {
    if (setting_.real == DType::f32) {
      expect_node<float>(graph_, id, all, tile, views);
    } else {
      expect_node<double>(graph_, id, all, tile, views);
    }
  }
  const Outcomes own = own_(tile, views);
  for (std::size_t output = 0; output < graph_.outputs().size(); ++output) {
    const auto node = static_cast<std::size_t>(graph_.outputs()[output]);
    EXPECT_EQ(own.poison[output], all.poison[node]);
    for (std::size_t i = 0; i < own.poison[output].size(); ++i) {
      if (own.poison[output][i] != 0) continue;
      EXPECT_EQ(own.integers[output][i], all.integers[node][i]) << "pair " << i;
      EXPECT_TRUE(same(own.reals[output][i], all.reals[node][i]))
          << "pair " << i << ": " << own.reals[output][i] << ", " << all.reals[node][i];
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace treadle::test
