// Puts constants in the place of scalars.
//
// In: a graph and the memory of its captures. Out: a graph with fewer captures.
#include "passes/scalars.h"

#include <algorithm>
#include <vector>

#include "base/element.h"
#include "base/error.h"
#include "ir/builder.h"
#include "ir/per_node.h"
#include "passes/simplify.h"
#include "treadle/error.h"

namespace treadle::passes {

using ir::NodeId;
using ir::Op;

bool divides(Op op) {
  return op == Op::mod || op == Op::floor_div || op == Op::bit_and || op == Op::shift_right;
}

namespace {

ir::Graph bound(const ir::Graph& graph, std::span<const ConstView> memory, Scalars which) {
  ir::PerNode<bool> wanted(graph.size());
  for (NodeId id = graph.size(); id-- > 0;) {
    const ir::Node& node = graph[id];
    const auto divisor = [&](std::size_t i) { return divides(node.op) && i == 1; };
    wanted[id] = wanted[id] || which == Scalars::all;
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      if (wanted[id] || divisor(i)) wanted[node.operands[i]] = true;
  }
  ir::Builder make;
  ir::PerNode<NodeId> to(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    to[id] = make.copy(graph, id, to);
    if (!wanted[id] || node.op != Op::load || graph.slot(node.slot).rank != 0) continue;
    const ConstView& view = memory[static_cast<std::size_t>(node.slot)];
    switch (node.type) {
      case ir::Type::boolean:
        to[id] = make.boolean(base::load_double(view.data(), view.dtype(), 0) != 0);
        break;
      case ir::Type::integer:
        to[id] = make.integer(base::load_int(view.data(), view.dtype(), 0));
        break;
      case ir::Type::real:
        to[id] = make.real(base::load_double(view.data(), view.dtype(), 0));
        break;
    }
  }
  std::vector<NodeId> outputs;
  for (const NodeId output : graph.outputs()) outputs.push_back(to[output]);
  return simplify(make.finish(outputs));
}

}  // namespace

std::optional<ir::Graph> with_scalars(const ir::Graph& graph, std::span<const ConstView> memory,
                                      Scalars which) {
  try {
    return bound(graph, memory, which);
  } catch (const Error&) {  // a divisor may become 0 at any step of simplifying
    return {};
  }
}

std::vector<ConstView> memory_of(const ir::Graph& graph, std::span<const ir::Slot> slots,
                                 std::span<const ConstView> memory) {
  std::vector<ConstView> own;
  for (const ir::Slot& slot : graph.slots()) {
    const auto found = std::ranges::find(slots, slot.name, &ir::Slot::name);
    if (found == slots.end()) base::internal_error("no memory is bound to {}", slot.name);
    own.push_back(memory[static_cast<std::size_t>(found - slots.begin())]);
  }
  return own;
}

}  // namespace treadle::passes
