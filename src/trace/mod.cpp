// Calls mods: expressions from text, and mods inside mods.
//
// In: a mod and its arguments. Out: the traced result, checked to be a number or a bool.
#include "treadle/mod.h"

#include <optional>

#include "base/error.h"
#include "ir/lexer.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "trace/recorder.h"

namespace treadle {
namespace {

using ir::Input;
using ir::NodeId;
using ir::Op;
using ir::Type;

Value value_of(const Operand& operand) {
  return operand.kind() == Operand::Kind::value ? operand.value() : trace::constant(operand);
}

// Writes a parsed graph down again, its inputs replaced by other values.
Value inlined(const trace::Parsed& parsed, const std::optional<Score>& score, const Index& b,
              const Index& h, const Index& q, const Index& kv) {
  const auto input = [&](Input which) -> Value {
    switch (which) {
      case Input::score: return *score;
      case Input::b: return b;
      case Input::h: return h;
      case Input::q: return q;
      case Input::kv: return kv;
      case Input::grad: break;
    }
    base::internal_error("a parsed mod mentions grad");
  };
  const auto number = [](const ir::Node& node) -> Operand {
    switch (node.type) {
      case Type::real: return node.real();
      case Type::integer: return node.integer();
      case Type::boolean: return node.boolean();
    }
    base::internal_error("a constant of type {}", static_cast<int>(node.type));
  };
  ir::PerNode<Operand> to;
  for (const ir::Node& node : parsed.graph.nodes()) {
    std::vector<Operand> operands;
    for (const NodeId operand : node.operands) operands.push_back(to[operand]);
    if (node.op == Op::input) {
      to.push_back(input(node.input));
    } else if (node.op == Op::constant) {
      to.push_back(number(node));
    } else if (node.op == Op::load) {
      to.push_back(trace::load(parsed.captures[static_cast<std::size_t>(node.slot)], operands));
    } else {
      to.push_back(trace::apply(node.op, operands));
    }
  }
  return value_of(to[parsed.graph.output()]);
}

}  // namespace

std::string Expression::text() const { return ir::to_text(parsed_->graph); }
bool Expression::is_bool() const { return parsed_->graph.output_type() == Type::boolean; }

Value Expression::operator()(const Score& score, const Index& b, const Index& h, const Index& q,
                             const Index& kv) const {
  return inlined(*parsed_, score, b, h, q, kv);
}

Value Expression::operator()(const Index& b, const Index& h, const Index& q,
                             const Index& kv) const {
  if (parsed_->graph.uses(Input::score)) {
    base::fail("mask: \"{}\" mentions the score; which pairs are visible must not depend on it",
               ir::shortened(text()));
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
  if (parsed->graph.outputs().size() != 1)
    base::fail("parse: a mod is one expression, the text has {}", parsed->graph.outputs().size());
  for (const ir::Slot& slot : parsed->graph.slots()) {
    for (const Capture& capture : captures) {
      if (capture.name() == slot.name) parsed->captures.push_back(capture);
    }
  }
  return Expression(std::move(parsed));
}

Float ScoreMod::operator()(const Score& s, const Index& b, const Index& h, const Index& q,
                           const Index& kv) const {
  if (!function_) return s;
  const Operand result = function_(s, b, h, q, kv);
  if (trace::type_of(result) == Type::boolean) {
    base::fail(
        "score mod: it returns a bool; a score mod returns a number (a mask returns a bool)");
  }
  return Float(value_of(result));
}

Bool MaskMod::operator()(const Index& b, const Index& h, const Index& q, const Index& kv) const {
  const Operand result = function_ ? function_(b, h, q, kv) : Operand(true);
  const Type type = trace::type_of(result);
  if (type != Type::boolean) {
    base::fail("mask: it returns a value of type {}; a mask returns a bool", ir::name_of(type));
  }
  return Bool(value_of(result));
}

}  // namespace treadle
