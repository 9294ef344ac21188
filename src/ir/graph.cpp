// Looks up what a graph uses, and writes it down as a key.
#include "ir/graph.h"

#include <algorithm>

namespace treadle::ir {

std::size_t NodeHash::operator()(const Node& node) const {
  std::uint64_t hash =
      static_cast<std::uint64_t>(node.op) << 8 | static_cast<std::uint64_t>(node.type);
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  };
  mix(static_cast<std::uint64_t>(node.input));
  mix(static_cast<std::uint64_t>(node.slot));
  mix(node.bits);
  for (const NodeId operand : node.operands) mix(static_cast<std::uint64_t>(operand));
  return hash;
}

bool Graph::uses(Input input) const {
  return std::ranges::any_of(
      parts_->nodes, [&](const Node& node) { return node.op == Op::input && node.input == input; });
}

const Slot* Graph::find_slot(std::string_view name) const {
  const auto slot = std::ranges::find(parts_->slots, name, &Slot::name);
  return slot == parts_->slots.end() ? nullptr : &*slot;
}

base::Key Graph::key() const {
  base::Hasher hasher;
  hasher.add(parts_->nodes.size());
  for (const Node& node : parts_->nodes) {
    // By spelling, not by number: a row added to ops.def must not change the hash of graphs that do
    // not use it.
    hasher.add(node.op == Op::input      ? "input"
               : node.op == Op::constant ? "constant"
               : node.op == Op::load     ? "load"
                                         : info(node.op).text);
    hasher.add(name_of(node.type));
    if (node.op == Op::input) hasher.add(name_of(node.input));
    hasher.add(node.slot);
    hasher.add(node.bits);
    hasher.add(node.operands.size());
    for (const NodeId operand : node.operands) hasher.add(operand);
  }
  hasher.add(parts_->slots.size());
  for (const Slot& slot : parts_->slots) {
    hasher.add(slot.name);
    hasher.add(treadle::name_of(slot.dtype));
    hasher.add(slot.rank);
  }
  hasher.add(parts_->outputs.size());
  for (const NodeId output : parts_->outputs) hasher.add(output);
  return hasher.key();
}

}  // namespace treadle::ir
