// The same nodes but for two inputs.
#include "ir/exchange.h"

#include "ir/builder.h"

namespace treadle::ir {

Graph exchanged(const Graph& graph) {
  Builder make;
  PerNode<NodeId> to(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.op == Op::input && node.input == Input::q) {
      to[id] = make.input(Input::kv);
    } else if (node.op == Op::input && node.input == Input::kv) {
      to[id] = make.input(Input::q);
    } else {
      to[id] = make.copy(graph, id, to);
    }
  }
  std::vector<NodeId> outputs;
  for (const NodeId output : graph.outputs()) outputs.push_back(to[output]);
  return make.finish(outputs);
}

}  // namespace treadle::ir
