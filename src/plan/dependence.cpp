// Which inputs reach a node, directly or through its operands.
//
// In: a graph. Out: for each node, whether q, kv or the score can change it.
#include "plan/dependence.h"

namespace treadle::plan {

ir::PerNode<Dependence> dependences(const ir::Graph& graph) {
  ir::PerNode<Dependence> on(graph.size());
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    Dependence& mine = on[id];
    if (node.op == ir::Op::input) {
      mine.q = node.input == ir::Input::q;
      mine.kv = node.input == ir::Input::kv;
      mine.score = node.input == ir::Input::score || node.input == ir::Input::grad;
    }
    for (const ir::NodeId operand : node.operands) {
      mine.q |= on[operand].q;
      mine.kv |= on[operand].kv;
      mine.score |= on[operand].score;
    }
  }
  return on;
}

Level level_of(const Dependence& on) {
  if (on.score || (on.q && on.kv)) return Level::pair;
  if (on.q) return Level::queries;
  return on.kv ? Level::key : Level::head;
}

}  // namespace treadle::plan
