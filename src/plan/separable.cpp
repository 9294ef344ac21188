// Whether indices of a contribution separate into a part of the query and a part of the key.
#include "plan/separable.h"

#include <algorithm>

#include "plan/dependence.h"

namespace treadle::plan {
namespace {

// Whether the node is a number of the query plus a number of the key.
bool separates(const ir::Graph& graph, const std::vector<Dependence>& on, ir::NodeId id) {
  const Dependence& mine = on[static_cast<std::size_t>(id)];
  if (mine.score) return false;
  if (!mine.q || !mine.kv) return true;
  const ir::Node& node = graph[id];
  const auto part = [&](std::size_t i) { return separates(graph, on, node.operands[i]); };
  const auto fixed = [&](std::size_t i) {
    return level_of(on[static_cast<std::size_t>(node.operands[i])]) == Level::head;
  };
  if (node.op == ir::Op::add || node.op == ir::Op::sub) return part(0) && part(1);
  if (node.op == ir::Op::neg) return part(0);
  return node.op == ir::Op::mul && ((fixed(0) && part(1)) || (fixed(1) && part(0)));
}

}  // namespace

bool is_separable(const ir::Graph& derivative, const ir::Contribution& contribution) {
  const std::vector<Dependence> on = dependences(derivative);
  return std::ranges::all_of(contribution.index, [&](int output) {
    return separates(derivative, on, derivative.outputs()[static_cast<std::size_t>(output)]);
  });
}

}  // namespace treadle::plan
