// Mods as values: expressions from text, and masks that are called inside masks.
#include "treadle/mod.h"

#include <array>
#include <optional>

#include "base/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "trace/recorder.h"

namespace treadle {
namespace {

using ir::Input;
using ir::NodeId;
using ir::Op;
using ir::Type;

// Writes a parsed graph down again, its inputs replaced by values that are traced already.
Value inlined(const trace::Parsed& parsed, const std::optional<Score>& score, const Index& b, const Index& h,
              const Index& q, const Index& kv) {
  const auto recorder = score ? trace::recorder_of({*score, b, h, q, kv}, "expression")
                              : trace::recorder_of({b, h, q, kv}, "expression");
  ir::Builder& make = recorder->make();
  const auto input = [&](Input which) -> NodeId {
    switch (which) {
      case Input::score: return make.convert(recorder->node_of(*score), Type::real);
      case Input::b: return recorder->node_of(b);
      case Input::h: return recorder->node_of(h);
      case Input::q: return recorder->node_of(q);
      case Input::kv: return recorder->node_of(kv);
      case Input::grad: break;
    }
    base::internal_error("a parsed mod mentions grad");
  };
  std::vector<NodeId> to;
  for (NodeId id = 0; id < parsed.graph.size(); ++id) {
    const ir::Node& node = parsed.graph[id];
    if (node.op == Op::input) {
      to.push_back(input(node.input));
    } else if (node.op == Op::load) {
      std::vector<NodeId> indices;
      for (const NodeId index : node.operands) indices.push_back(to[static_cast<std::size_t>(index)]);
      to.push_back(recorder->load(parsed.captures[static_cast<std::size_t>(node.slot)], std::move(indices)));
    } else {
      to.push_back(make.copy(parsed.graph, id, to));
    }
  }
  return {recorder, to[static_cast<std::size_t>(parsed.graph.output())]};
}

}  // namespace

std::string Expression::text() const { return ir::to_text(parsed_->graph); }
bool Expression::is_bool() const { return parsed_->graph.output_type() == Type::boolean; }

Value Expression::operator()(const Score& score, const Index& b, const Index& h, const Index& q,
                             const Index& kv) const {
  return inlined(*parsed_, score, b, h, q, kv);
}

Value Expression::operator()(const Index& b, const Index& h, const Index& q, const Index& kv) const {
  if (parsed_->graph.uses(Input::score)) {
    base::fail("mask: \"{}\" mentions the score; which pairs are visible must not depend on it", text());
  }
  return inlined(*parsed_, std::nullopt, b, h, q, kv);
}

Expression parse(std::string_view text, const std::vector<Capture>& captures) {
  std::vector<ir::Slot> slots;
  for (const Capture& capture : captures) {
    slots.push_back({capture.name(), capture.view().dtype(), capture.view().rank()});
  }
  auto parsed = std::make_shared<trace::Parsed>();
  parsed->graph = ir::parse(text, slots);
  if (parsed->graph.outputs().size() != 1) base::fail("parse: a mod is one expression, the text has {}", parsed->graph.outputs().size());
  for (const ir::Slot& slot : parsed->graph.slots()) {
    for (const Capture& capture : captures) {
      if (capture.name() == slot.name) parsed->captures.push_back(capture);
    }
  }
  return Expression(std::move(parsed));
}

Float ScoreMod::operator()(const Score& s, const Index& b, const Index& h, const Index& q, const Index& kv) const {
  if (!function_) return s;
  const auto recorder = trace::recorder_of({s, b, h, q, kv}, "score mod");
  const NodeId node = recorder->node_of(function_(s, b, h, q, kv));
  if (recorder->make().type(node) == Type::boolean) {
    base::fail("score mod: it returns a bool; a score mod returns a number (a mask returns a bool)");
  }
  return Float(Value(recorder, node));
}

Bool MaskMod::operator()(const Index& b, const Index& h, const Index& q, const Index& kv) const {
  const auto recorder = trace::recorder_of({b, h, q, kv}, "mask");
  const Operand result = function_ ? function_(b, h, q, kv) : Operand(true);
  const NodeId node = recorder->node_of(result);
  const Type type = recorder->make().type(node);
  if (type != Type::boolean) {
    base::fail("mask: it returns a value of type {}; a mask returns a bool", ir::name_of(type));
  }
  return Bool(Value(recorder, node));
}

}  // namespace treadle
