// Spreads poison from reads outside a buffer and divisions by zero, and finds where it came from.
//
// In: a node whose operands have been evaluated. Out: its poison. Read evaluate_poison() first.
#include <algorithm>

#include "base/error.h"
#include "ir/interpret.h"

namespace treadle::ir {

template <class F>
void Interpreter<F>::evaluate_poison(NodeId id, std::int64_t count) {
  const Node& node = graph_[id];
  Column& out = columns_[id];
  const auto n = static_cast<std::size_t>(count);
  const auto poisoned = [](const Column& column, std::size_t i) {
    return !column.poison.empty() && column.poison[i] != 0;
  };
  // A load has marked the reads outside its buffer already; a division by zero is marked here.
  const bool divides = node.op == Op::floor_div || node.op == Op::mod;
  if (divides && std::ranges::find(operand(id, 1).integer, 0) != operand(id, 1).integer.end()) {
    out.poison.resize(n);
    for (std::size_t i = 0; i < n; ++i) out.poison[i] = operand(id, 1).integer[i] == 0;
  }
  const auto has_poison = [&](NodeId operand) { return !columns_[operand].poison.empty(); };
  if (!std::ranges::any_of(node.operands, has_poison)) return;
  out.poison.resize(n);

  if (node.op == Op::where) {
    for (std::size_t i = 0; i < n; ++i) {
      const Column& chosen = operand(id, operand(id, 0).boolean[i] ? 1 : 2);
      out.poison[i] = poisoned(operand(id, 0), i) || poisoned(chosen, i);
    }
    return;
  }
  if (node.op == Op::logical_and || node.op == Op::logical_or) {
    // A sound operand that decides alone makes the other one irrelevant.
    const std::uint8_t deciding = node.op == Op::logical_or;
    const Column& a = operand(id, 0);
    const Column& b = operand(id, 1);
    for (std::size_t i = 0; i < n; ++i) {
      const bool a_decides = !poisoned(a, i) && a.boolean[i] == deciding;
      const bool b_decides = !poisoned(b, i) && b.boolean[i] == deciding;
      out.poison[i] = (poisoned(a, i) || poisoned(b, i)) && !a_decides && !b_decides;
      if (a_decides || b_decides) out.boolean[i] = deciding;
    }
    return;
  }
  for (int o = 0; o < static_cast<int>(node.operands.size()); ++o) {
    for (std::size_t i = 0; i < n; ++i) out.poison[i] |= poisoned(operand(id, o), i);
  }
}

template <class F>
std::string Interpreter<F>::poison_reason(int output, std::int64_t point) const {
  const auto i = static_cast<std::size_t>(point);
  const auto poisoned = [&](NodeId id) {
    return !columns_[id].poison.empty() && columns_[id].poison[i] != 0;
  };
  NodeId id = graph_.output(output);
  if (!poisoned(id))
    base::internal_error("poison_reason: output {} is sound at point {}", output, point);
  // Follow the poison to where it entered.
  while (true) {
    const Node& node = graph_[id];
    NodeId next = -1;
    if (node.op == Op::where && !poisoned(node.operands[0])) {
      next = node.operands[operand(id, 0).boolean[i] ? 1 : 2];
    } else {
      const auto guilty = std::ranges::find_if(node.operands, poisoned);
      if (guilty != node.operands.end()) next = *guilty;
    }
    if (next < 0) break;
    id = next;
  }
  const Node& node = graph_[id];
  if (node.op != Op::load) return fmt::format("{}: the divisor is 0", info(node.op).text);
  const ConstView& view = memory_of(node);
  const std::string& name = graph_.slot(node.slot).name;
  for (int axis = 0; axis < view.rank(); ++axis) {
    const std::int64_t index = operand(id, axis).integer[i];
    if (index < 0 || index >= view.size(axis)) {
      return fmt::format("{}: index {} along dimension {} is outside its length {}", name, index,
                         axis, view.size(axis));
    }
  }
  base::internal_error("poison_reason: {} was read inside its bounds", name);
}

template void Interpreter<float>::evaluate_poison(NodeId, std::int64_t);
template void Interpreter<double>::evaluate_poison(NodeId, std::int64_t);
template std::string Interpreter<float>::poison_reason(int, std::int64_t) const;
template std::string Interpreter<double>::poison_reason(int, std::int64_t) const;

}  // namespace treadle::ir
