#include "plan/dependence.h"

namespace treadle::plan {

std::vector<Dependence> dependences(const ir::Graph& graph) {
  std::vector<Dependence> on(static_cast<std::size_t>(graph.size()));
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    Dependence& mine = on[static_cast<std::size_t>(id)];
    if (node.op == ir::Op::input) {
      mine.q = node.input == ir::Input::q;
      mine.kv = node.input == ir::Input::kv;
      mine.score = node.input == ir::Input::score || node.input == ir::Input::grad;
    }
    for (const ir::NodeId operand : node.operands) {
      const Dependence& its = on[static_cast<std::size_t>(operand)];
      mine.q |= its.q;
      mine.kv |= its.kv;
      mine.score |= its.score;
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
