// From a mod's graph to when and how each of its nodes is computed.
//
// In: a graph and the facts of a call. Out: a ModPlan. Read plan_mod() first.
#include "plan/mod_plan.h"

#include <algorithm>

#include "plan/separable.h"

namespace treadle::plan {
namespace {

using ir::NodeId;

bool is_taken_apart(ReadForm form) {
  return form == ReadForm::lanes || form == ReadForm::backwards || form == ReadForm::staged;
}

// Wants the parts of a sum that do not depend on `input`, the member of Dependence named so.
void want_parts(ModPlan& plan, NodeId id, bool Dependence::* input) {
  if (!(plan.on[id].*input)) {
    plan.wanted[id] = true;
    return;
  }
  for (const NodeId operand : plan.graph[id].operands) want_parts(plan, operand, input);
}

// What no output needs is not computed.
void mark_wanted(ModPlan& plan) {
  for (const NodeId output : plan.graph.outputs()) plan.wanted[output] = true;
  for (NodeId id = plan.graph.size() - 1; id >= 0; --id) {
    if (!plan.wanted[id]) continue;
    const ir::Node& node = plan.graph[id];
    const bool apart = node.op == ir::Op::load && is_taken_apart(plan.read[id]);
    for (const NodeId operand : node.operands) {
      if (apart && operand == node.operands.back()) {
        const bool staged = plan.read[id] == ReadForm::staged;
        want_parts(plan, operand, staged ? &Dependence::kv : &Dependence::q);
      } else {
        plan.wanted[operand] = true;
      }
    }
    if (node.op == ir::Op::load && plan.read[id] == ReadForm::staged) plan.staged.push_back(id);
  }
}

}  // namespace

bool ModPlan::reads_lanes() const {
  return std::ranges::any_of(
      read, [](ReadForm form) { return form == ReadForm::lanes || form == ReadForm::backwards; });
}

std::size_t ModPlan::staged_number(NodeId load) const {
  return static_cast<std::size_t>(std::ranges::find(staged, load) - staged.begin());
}

ModPlan plan_mod(const ir::Graph& graph, const ModFacts& facts,
                 std::span<const ir::Contribution> contributions) {
  ModPlan plan{.graph = graph, .facts = facts, .on = dependences(graph)};
  plan.level = ir::PerNode<Level>(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) plan.level[id] = level_of(plan.on[id]);
  plan.read = read_forms(graph, plan.on, facts);
  plan.wanted = ir::PerNode<bool>(graph.size());
  mark_wanted(plan);
  for (const ir::Contribution& contribution : contributions)
    plan.separable.push_back(is_separable(graph, plan.on, contribution));
  return plan;
}

}  // namespace treadle::plan
