// Which loads can take all lanes at once, from how their indices change with q and kv.
//
// In: a graph, its dependences and the facts of a call. Out: a form for each load. Read form_of()
// first.
#include "plan/read_form.h"

#include <algorithm>

namespace treadle::plan {
namespace {

using ir::Input;
using ir::NodeId;
using ir::Op;
using Coefficient = std::optional<std::int64_t>;

// Far beyond any that is of use, and sums and products of two stay exact.
constexpr std::int64_t largest = 1 << 20;

Coefficient bounded(std::int64_t value) {
  if (value < -largest || value > largest) return {};
  return value;
}

Coefficient constant_of(const ir::Graph& graph, NodeId id) {
  if (graph[id].op != Op::constant) return {};
  return bounded(graph[id].integer());
}

// By how much each node grows with q and with kv.
struct Steps {
  ir::PerNode<Coefficient> q, kv;
};

ReadForm form_of(const ir::Graph& graph, NodeId id, const ir::PerNode<Dependence>& on,
                 const Steps& steps, const ModFacts& facts) {
  const ir::Node& node = graph[id];
  const Dependence all = on[id];
  if (!all.q && !all.score) return ReadForm::uniform;

  const auto slot = static_cast<std::size_t>(node.slot);
  const bool unit = slot < facts.unit_stride.size() && facts.unit_stride[slot];
  if (all.score || facts.reads == Reads::checked || !unit) return ReadForm::gather;

  const NodeId last = node.operands.back();
  const auto others_without = [&](auto member) {
    return std::all_of(node.operands.begin(), node.operands.end() - 1,
                       [&](NodeId index) { return !(on[index].*member); });
  };
  if (facts.consecutive && others_without(&Dependence::q)) {
    if (steps.q[last] == 1) return ReadForm::lanes;
    if (steps.q[last] == -1) return ReadForm::backwards;
  }
  if (all.kv && others_without(&Dependence::kv) && steps.kv[last] == 1) return ReadForm::staged;
  return ReadForm::gather;
}

}  // namespace

ir::PerNode<Coefficient> coefficients(const ir::Graph& graph, Input input) {
  ir::PerNode<Coefficient> step(graph.size(), 0);
  ir::PerNode<bool> depends(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    const auto operand = [&](std::size_t i) { return step[node.operands[i]]; };
    const auto sum = [&](std::int64_t sign) -> Coefficient {
      const Coefficient a = operand(0);
      const Coefficient b = operand(1);
      return a && b ? bounded(*a + sign * *b) : Coefficient{};
    };
    const auto negated = [&]() -> Coefficient {
      const Coefficient a = operand(0);
      return a ? Coefficient(-*a) : Coefficient{};
    };
    const auto product = [&](std::size_t factor) -> Coefficient {
      const Coefficient constant = constant_of(graph, node.operands[factor]);
      const Coefficient other = operand(1 - factor);
      return constant && other ? bounded(*constant * *other) : Coefficient{};
    };
    for (const NodeId from : node.operands) depends[id] = depends[id] || depends[from];
    if (node.op == Op::input && node.input == input) {
      depends[id] = true;
      step[id] = 1;
    } else if (depends[id]) {
      step[id] = {};
      if (node.type != ir::Type::integer) continue;
      if (node.op == Op::add) step[id] = sum(1);
      if (node.op == Op::sub) step[id] = sum(-1);
      if (node.op == Op::neg) step[id] = negated();
      if (node.op == Op::mul) step[id] = product(0) ? product(0) : product(1);
    }
  }
  return step;
}

ir::PerNode<ReadForm> read_forms(const ir::Graph& graph, const ir::PerNode<Dependence>& on,
                                 const ModFacts& facts, Stages stages) {
  const int most = stages == Stages::reads ? most_staged : 0;
  ir::PerNode<ReadForm> forms(graph.size(), ReadForm::uniform);
  if (graph.slots().empty()) return forms;
  int staged = 0;
  const Steps steps{coefficients(graph, Input::q), coefficients(graph, Input::kv)};
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::load) {
      forms[id] = form_of(graph, id, on, steps, facts);
      if (forms[id] == ReadForm::staged && ++staged > most) forms[id] = ReadForm::gather;
    }
  return forms;
}

}  // namespace treadle::plan
