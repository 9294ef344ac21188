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

// What no output needs is not computed. From the last node to the first, so that each is looked at
// once, after everything that uses it.
void mark_wanted(ModPlan& plan) {
  for (const NodeId output : plan.graph.outputs()) plan.wanted[output] = true;
  for (NodeId id = plan.graph.size() - 1; id >= 0; --id) {
    const ir::Node& node = plan.graph[id];
    // Of an index that is taken apart, the parts that do not change.
    const auto pass_on = [&](ir::PerNode<bool>& apart, bool changes) {
      if (!apart[id]) return;
      if (!changes) {
        apart[id] = false;
        plan.wanted[id] = true;
        return;
      }
      for (const NodeId operand : node.operands) apart[operand] = true;
    };
    pass_on(plan.at_first_query, plan.on[id].q);
    pass_on(plan.at_first_key, plan.on[id].kv);
    if (!plan.wanted[id]) continue;

    const bool apart = node.op == ir::Op::load && is_taken_apart(plan.read[id]);
    for (const NodeId operand : node.operands) {
      if (apart && operand == node.operands.back()) {
        const bool staged = plan.read[id] == ReadForm::staged;
        (staged ? plan.at_first_key : plan.at_first_query)[operand] = true;
      } else {
        plan.wanted[operand] = true;
      }
    }
    if (node.op != ir::Op::load || plan.read[id] != ReadForm::staged) continue;
    plan.staged_number[id] = static_cast<std::int32_t>(plan.staged.size());
    plan.staged.push_back(id);
    const DType dtype = plan.graph.slot(node.slot).dtype;
    plan.staged_before.push_back(plan.staged_before.back() +
                                 static_cast<std::int64_t>(size_of(dtype)));
  }
}

}  // namespace

bool ModPlan::clamps(NodeId load, std::size_t axis) const {
  if (facts.reads != Reads::clamped) return false;
  const std::size_t number = static_cast<std::size_t>(first_index[load]) + axis;
  return number >= facts.clamp.size() || facts.clamp[number];
}

bool ModPlan::reads_lanes() const {
  return std::ranges::any_of(
      read, [](ReadForm form) { return form == ReadForm::lanes || form == ReadForm::backwards; });
}

ModScratch scratch_of(const ModPlan& plan, std::int64_t lanes) {
  return {.staged = staged_bytes(plan), .frame = frame_bytes(plan.pieces, lanes)};
}

ModScratch most_scratch_of(const ir::Graph& graph, std::int64_t lanes) {
  // With consecutive queries some of these would be read in the lanes.
  const ModFacts facts{.narrow = true,
                       .reads = Reads::proven,
                       .consecutive = false,
                       .unit_stride = std::vector<bool>(graph.slots().size(), true)};
  return scratch_of(plan_mod(graph, facts), lanes);
}

ModPlan plan_mod(const ir::Graph& graph, const ModFacts& facts,
                 std::span<const ir::Contribution> contributions, const PieceSize& size,
                 Stages stages) {
  ModPlan plan{.graph = graph, .facts = facts, .on = dependences(graph)};
  plan.level = ir::PerNode<Level>(graph.size());
  plan.first_index = ir::PerNode<std::int32_t>(graph.size(), -1);
  std::int32_t indices = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    plan.level[id] = level_of(plan.on[id]);
    if (graph[id].op != ir::Op::load) continue;
    plan.first_index[id] = indices;
    indices += static_cast<std::int32_t>(graph[id].operands.size());
  }
  plan.read = read_forms(graph, plan.on, facts, stages);
  plan.wanted = plan.at_first_query = plan.at_first_key = ir::PerNode<bool>(graph.size());
  plan.staged_number = ir::PerNode<std::int32_t>(graph.size(), -1);
  mark_wanted(plan);
  plan.separable = separable_contributions(graph, plan.on, contributions);
  plan.pieces = cut(graph, plan.on, plan.level, size);
  return plan;
}

}  // namespace treadle::plan
