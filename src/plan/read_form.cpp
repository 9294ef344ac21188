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

ReadForm form_of(const ir::Graph& graph, NodeId id, const ir::PerNode<Dependence>& on,
                 const ModFacts& facts) {
  const ir::Node& node = graph[id];
  const Dependence all = on[id];
  if (!all.q && !all.score) return ReadForm::uniform;

  const auto slot = static_cast<std::size_t>(node.slot);
  const bool unit = slot < facts.unit_stride.size() && facts.unit_stride[slot];
  if (all.score || facts.checked || !unit) return ReadForm::gather;

  const NodeId last = node.operands.back();
  const auto others_without = [&](auto member) {
    return std::all_of(node.operands.begin(), node.operands.end() - 1,
                       [&](NodeId index) { return !(on[index].*member); });
  };
  if (facts.consecutive && others_without(&Dependence::q)) {
    const Coefficient step = coefficient(graph, last, Input::q);
    if (step == 1) return ReadForm::lanes;
    if (step == -1) return ReadForm::backwards;
  }
  if (all.kv && others_without(&Dependence::kv) && coefficient(graph, last, Input::kv) == 1) {
    return ReadForm::staged;
  }
  return ReadForm::gather;
}

}  // namespace

Coefficient coefficient(const ir::Graph& graph, NodeId id, Input input) {
  struct Known {
    bool depends = false;
    Coefficient step = 0;
  };
  ir::PerNode<Known> known(id + 1);
  for (NodeId at = 0; at <= id; ++at) {
    const ir::Node& node = graph[at];
    Known& mine = known[at];
    const auto operand = [&](std::size_t i) -> const Known& { return known[node.operands[i]]; };
    const auto sum = [&](std::int64_t sign) -> Coefficient {
      const Coefficient a = operand(0).step;
      const Coefficient b = operand(1).step;
      return a && b ? bounded(*a + sign * *b) : Coefficient{};
    };
    const auto negated = [&]() -> Coefficient {
      const Coefficient a = operand(0).step;
      return a ? Coefficient(-*a) : Coefficient{};
    };
    const auto product = [&](std::size_t factor) -> Coefficient {
      const Coefficient constant = constant_of(graph, node.operands[factor]);
      const Coefficient step = operand(1 - factor).step;
      return constant && step ? bounded(*constant * *step) : Coefficient{};
    };
    for (std::size_t i = 0; i < node.operands.size(); ++i) mine.depends |= operand(i).depends;
    if (node.op == Op::input && node.input == input) {
      mine = {.depends = true, .step = 1};
    } else if (mine.depends) {
      mine.step = {};
      if (node.type != ir::Type::integer) continue;
      if (node.op == Op::add) mine.step = sum(1);
      if (node.op == Op::sub) mine.step = sum(-1);
      if (node.op == Op::neg) mine.step = negated();
      if (node.op == Op::mul) mine.step = product(0) ? product(0) : product(1);
    }
  }
  return known[id].step;
}

ir::PerNode<ReadForm> read_forms(const ir::Graph& graph, const ir::PerNode<Dependence>& on,
                                 const ModFacts& facts) {
  ir::PerNode<ReadForm> forms(graph.size(), ReadForm::uniform);
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::load) forms[id] = form_of(graph, id, on, facts);
  return forms;
}

}  // namespace treadle::plan
