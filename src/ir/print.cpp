// Prints graphs as text.
//
// In: a graph. Out: its text. First it is decided which nodes get a name, then each definition is
// written as a tree. Read Printer::print() first.
#include "ir/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ir/precedence.h"

namespace treadle::ir {
namespace {

// Trees deeper than this are cut by a name, so that neither printing nor parsing recurses far.
constexpr int deepest_tree = 24;

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);  // the shortest that reads back to the same double
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string constant_text(const Node& node) {
  switch (node.type) {
    case Type::real: return real_text(node.real());
    case Type::integer: return fmt::format("{}", node.integer());
    case Type::boolean: return node.boolean() ? "true" : "false";
  }
  return "?";
}

// Written as a single word or number, so a name would only make it longer.
bool is_leaf(const Node& node) { return node.operands.empty(); }

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph), names_(graph.size()) { choose_names(); }

  Printed print() {
    Printed printed;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const std::string& name = names_[id];
      if (!name.empty()) printed.definitions += fmt::format("{} = {};\n", name, tree(id));
    }
    for (const NodeId output : graph_.outputs())
      printed.outputs.push_back(use(output, Binding::anything));
    return printed;
  }

 private:
  void choose_names() {
    PerNode<int> uses(graph_.size()), depth(graph_.size());
    for (const Node& node : graph_.nodes()) {
      for (const NodeId operand : node.operands) ++uses[operand];
    }
    for (const NodeId output : graph_.outputs()) ++uses[output];

    int next = 0;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      for (const NodeId operand : node.operands) {
        depth[id] = std::max(depth[id], depth[operand] + 1);
      }
      if (is_leaf(node) || (uses[id] < 2 && depth[id] < deepest_tree)) continue;
      depth[id] = 0;
      do names_[id] = fmt::format("t{}", next++);
      while (graph_.find_slot(names_[id]) != nullptr);
    }
  }

  // A node where it is used, in brackets if it binds more loosely than the place needs.
  std::string use(NodeId id, Binding needed) {
    const std::string& name = names_[id];
    if (!name.empty()) return name;
    std::string text = tree(id);
    return binding(id) < needed ? "(" + text + ")" : text;
  }

  Binding binding(NodeId id) const {
    const Node& node = graph_[id];
    if (node.op == Op::constant) {
      const bool signed_text = constant_text(node).starts_with('-');
      return signed_text ? Binding::sign : Binding::primary;
    }
    return written_as_call(node) ? Binding::primary : binding_of(node.op);
  }

  // `-2.0` reads as a constant, so a sign before a number must be spelled out. `^` on bools and on
  // integers differ by type.
  bool written_as_call(const Node& node) const {
    if (info(node.op).infix.empty()) return true;
    return node.op == Op::neg && graph_[node.operands[0]].op == Op::constant;
  }

  std::string arguments(const Node& node) {
    std::string text;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      if (i > 0) text += ", ";
      text += use(node.operands[i], Binding::anything);
    }
    return text;
  }

  std::string tree(NodeId id) {
    const Node& node = graph_[id];
    const OpInfo& row = info(node.op);
    if (node.op == Op::input) return std::string(name_of(node.input));
    if (node.op == Op::constant) return constant_text(node);
    if (node.op == Op::load) {
      const std::string& name = graph_.slot(node.slot).name;
      return node.operands.empty() ? name : fmt::format("{}[{}]", name, arguments(node));
    }
    if (written_as_call(node)) return fmt::format("{}({})", row.text, arguments(node));

    const Binding own = binding_of(node.op);
    if (row.arity == 1) return fmt::format("{}{}", row.infix, use(node.operands[0], own));
    // Chains lean to the left; powers to the right; comparisons do not chain.
    const bool right = own == Binding::power;
    const bool both = own == Binding::comparison;
    // A power binds tighter than a sign on its left but takes one on its right: 2 ** -x.
    const Binding left_needs = right || both ? tighter(own) : own;
    const Binding right_needs = right ? Binding::sign : tighter(own);
    return fmt::format("{} {} {}", use(node.operands[0], left_needs), row.infix,
                       use(node.operands[1], right_needs));
  }

  const Graph& graph_;
  PerNode<std::string> names_;  // empty for nodes that are written where they are used
};

}  // namespace

Printed print(const Graph& graph) { return Printer(graph).print(); }

std::string to_text(const Graph& graph) {
  const Printed printed = print(graph);
  return fmt::format("{}{}", printed.definitions, fmt::join(printed.outputs, ", "));
}

std::string to_listing(const Graph& graph) {
  std::string text;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    std::string what(info(node.op).text);
    if (node.op == Op::input) what = name_of(node.input);
    if (node.op == Op::constant) what = constant_text(node);
    if (node.op == Op::load) {
      const bool known = node.slot >= 0 && node.slot < static_cast<int>(graph.slots().size());
      what = fmt::format("load {}", known ? graph.slot(node.slot).name : "?");
    }
    text += fmt::format("%{} {} = {}", id, name_of(node.type), what);
    for (const NodeId operand : node.operands) text += fmt::format(" %{}", operand);
    text += '\n';
  }
  text += "outputs";
  for (const NodeId output : graph.outputs()) text += fmt::format(" %{}", output);
  return text + '\n';
}

}  // namespace treadle::ir
