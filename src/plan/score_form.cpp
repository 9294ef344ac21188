// Whether a score mod is nothing, an addition, or anything else.
//
// In: a score mod's graph. Out: its form.
#include "plan/score_form.h"

#include <numbers>

#include "ir/builder.h"

namespace treadle::plan {
namespace {

using ir::Input;
using ir::Node;
using ir::NodeId;
using ir::Op;

bool is_score(const Node& node) { return node.op == Op::input && node.input == Input::score; }

// Of one node of a graph, as a graph of its own.
ir::Graph part(const ir::Graph& graph, NodeId output) {
  ir::Builder make;
  return make.finish({make.copy(graph)[output]});
}

}  // namespace

double ScoreForm::factor() const { return kind == Kind::general ? 1.0 : std::numbers::log2e; }

ScoreForm score_form(const ir::Graph& score_mod) {
  const Node& result = score_mod[score_mod.output()];
  if (is_score(result)) return {};
  if (result.op == Op::add) {
    for (const std::size_t side : {0u, 1u}) {
      if (!is_score(score_mod[result.operands[side]])) continue;
      ir::Graph rest = part(score_mod, result.operands[1 - side]);
      if (!rest.uses(Input::score)) return {ScoreForm::Kind::added, std::move(rest)};
    }
  }
  return {ScoreForm::Kind::general, score_mod};
}

}  // namespace treadle::plan
