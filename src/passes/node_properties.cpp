// Computes the properties of a node from those of its operands.
//
// In: a node of a builder. Out: what holds for it at every point, without looking at any data.
#include "passes/node_properties.h"

#include <cmath>

namespace treadle::passes {

using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Type;

namespace {

// Sums of two stay far inside 64 bits, and so do sums of those.
constexpr std::int64_t small_limit = std::int64_t{1} << 40;

}  // namespace

const NodeProperties::Properties& NodeProperties::at(NodeId id) {
  while (known_.size() <= id) known_.push_back(properties_of(known_.size()));
  return known_[id];
}

NodeProperties::Properties NodeProperties::properties_of(NodeId id) const {
  const Node& node = make_[id];
  const auto operand = [&](std::size_t i) { return known_[node.operands[i]]; };
  const auto positive_constant = [&](std::size_t i) {
    const Node& number = make_[node.operands[i]];
    return number.op == Op::constant && number.type == Type::integer && number.integer() > 0;
  };

  Properties result;
  const bool divides = node.op == Op::floor_div || node.op == Op::mod;
  result.poisonable = (node.op == Op::load && !node.operands.empty()) ||
                      (divides && make_[node.operands[1]].op != Op::constant);
  for (std::size_t i = 0; i < node.operands.size(); ++i) result.poisonable |= operand(i).poisonable;

  if (node.type != Type::integer) return result;
  if (node.op == Op::input) {
    result.never_negative = true;
    result.small = true;
  } else if (node.op == Op::constant) {
    result.never_negative = node.integer() >= 0;
    result.small = std::abs(static_cast<double>(node.integer())) < static_cast<double>(small_limit);
  } else if (node.op == Op::to_int) {
    const bool from_bool = make_[node.operands[0]].type == Type::boolean;
    result.never_negative = result.small = from_bool;
  } else if (node.op == Op::load) {
    const DType dtype = make_.slot(node.slot).dtype;
    result.never_negative = dtype == DType::u8;
    result.small = dtype != DType::i64;
  } else if (node.op == Op::mod) {
    result.never_negative = positive_constant(1);
    result.small = positive_constant(1) && operand(1).small;
  } else if (node.op == Op::floor_div) {
    result.never_negative = operand(0).never_negative && positive_constant(1);
    result.small = operand(0).small && positive_constant(1);
  } else if (node.op == Op::min || node.op == Op::max) {
    result.never_negative = operand(0).never_negative && operand(1).never_negative;
    result.small = operand(0).small && operand(1).small;
  }
  return result;
}

}  // namespace treadle::passes
