// Whether the indices of a contribution separate into a part of the query and a part of the key.
//
// In: a derivative and one of its contributions. Out: yes or no. Read separates() first.
#include "plan/separable.h"

#include <algorithm>

namespace treadle::plan {
namespace {

// Whether the node is a number of the query plus a number of the key.
bool separates(const ir::Graph& graph, const ir::PerNode<Dependence>& on, ir::NodeId id) {
  if (on[id].score) return false;
  if (!on[id].q || !on[id].kv) return true;
  const ir::Node& node = graph[id];
  const auto part = [&](std::size_t i) { return separates(graph, on, node.operands[i]); };
  const auto fixed = [&](std::size_t i) { return level_of(on[node.operands[i]]) == Level::head; };
  if (node.op == ir::Op::add || node.op == ir::Op::sub) return part(0) && part(1);
  if (node.op == ir::Op::neg) return part(0);
  return node.op == ir::Op::mul && ((fixed(0) && part(1)) || (fixed(1) && part(0)));
}

}  // namespace

bool is_separable(const ir::Graph& derivative, const ir::PerNode<Dependence>& on,
                  const ir::Contribution& contribution) {
  return std::ranges::all_of(contribution.index, [&](int output) {
    return separates(derivative, on, derivative.outputs()[static_cast<std::size_t>(output)]);
  });
}

bool is_separable(const ir::Graph& derivative, const ir::Contribution& contribution) {
  return is_separable(derivative, dependences(derivative), contribution);
}

}  // namespace treadle::plan
