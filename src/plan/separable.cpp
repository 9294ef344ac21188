// Whether the indices of a contribution separate into a part of the query and a part of the key, and
// whether there is the latter.
//
// In: a derivative and its contributions. Out: yes or no for each. Read separates() first.
#include "plan/separable.h"

#include <algorithm>

namespace treadle::plan {
namespace {

// For each node, whether it is a number of the query plus a number of the key.
ir::PerNode<bool> separates(const ir::Graph& graph, const ir::PerNode<Dependence>& on) {
  ir::PerNode<bool> separate(graph.size());
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    const auto part = [&](std::size_t i) -> bool { return separate[node.operands[i]]; };
    const auto fixed = [&](std::size_t i) { return level_of(on[node.operands[i]]) == Level::head; };
    if (on[id].score) continue;
    if (!on[id].q || !on[id].kv) {
      separate[id] = true;
    } else if (node.op == ir::Op::add || node.op == ir::Op::sub) {
      separate[id] = part(0) && part(1);
    } else if (node.op == ir::Op::neg) {
      separate[id] = part(0);
    } else if (node.op == ir::Op::mul) {
      separate[id] = (fixed(0) && part(1)) || (fixed(1) && part(0));
    }
  }
  return separate;
}

}  // namespace

std::vector<bool> separable_contributions(const ir::Graph& derivative,
                                          const ir::PerNode<Dependence>& on,
                                          std::span<const ir::Contribution> contributions) {
  if (contributions.empty()) return {};
  const ir::PerNode<bool> separate = separates(derivative, on);
  std::vector<bool> all;
  for (const ir::Contribution& contribution : contributions) {
    all.push_back(std::ranges::all_of(contribution.index, [&](int output) -> bool {
      return separate[derivative.output(output)];
    }));
  }
  return all;
}

std::vector<bool> keyed_contributions(const ir::Graph& derivative,
                                      const ir::PerNode<Dependence>& on,
                                      std::span<const ir::Contribution> contributions) {
  std::vector<bool> all;
  for (const ir::Contribution& contribution : contributions) {
    all.push_back(std::ranges::any_of(contribution.index, [&](int output) {
      const Dependence& index = on[derivative.output(output)];
      return index.kv || index.score;
    }));
  }
  return all;
}

}  // namespace treadle::plan
