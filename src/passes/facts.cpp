// In: a node whose operands are known; out: what can be said of it without looking at any data.
#include "passes/facts.h"

#include <algorithm>

namespace treadle::passes {

using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Type;

namespace {

// Sums of two stay far inside 64 bits, and so do sums of those.
constexpr std::int64_t small_limit = std::int64_t{1} << 40;

}  // namespace

bool Facts::is_integer(NodeId id, std::int64_t value) const {
  const Node& node = make_[id];
  return node.op == Op::constant && node.type == Type::integer && node.integer() == value;
}

bool Facts::is_real(NodeId id, double value) const {
  const Node& node = make_[id];
  return node.op == Op::constant && node.type == Type::real &&
         node.bits == std::bit_cast<std::uint64_t>(value);
}

bool Facts::is_boolean(NodeId id, bool value) const {
  const Node& node = make_[id];
  return node.op == Op::constant && node.type == Type::boolean && node.boolean() == value;
}

const Facts::Fact& Facts::at(NodeId id) {
  while (facts_.size() <= id) facts_.push_back(fact_of(facts_.size()));
  return facts_[id];
}

Facts::Fact Facts::fact_of(NodeId id) const {
  const Node& node = make_[id];
  const auto fact = [&](std::size_t i) { return facts_[node.operands[i]]; };
  const auto positive_constant = [&](std::size_t i) {
    const Node& operand = make_[node.operands[i]];
    return operand.op == Op::constant && operand.type == Type::integer && operand.integer() > 0;
  };

  Fact result;
  const bool divides = node.op == Op::floor_div || node.op == Op::mod;
  result.poisonable = (node.op == Op::load && !node.operands.empty()) ||
                      (divides && make_[node.operands[1]].op != Op::constant);
  for (std::size_t i = 0; i < node.operands.size(); ++i) result.poisonable |= fact(i).poisonable;

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
    result.small = positive_constant(1) && fact(1).small;
  } else if (node.op == Op::floor_div) {
    result.never_negative = fact(0).never_negative && positive_constant(1);
    result.small = fact(0).small && positive_constant(1);
  } else if (node.op == Op::min || node.op == Op::max) {
    result.never_negative = fact(0).never_negative && fact(1).never_negative;
    result.small = fact(0).small && fact(1).small;
  }
  return result;
}

}  // namespace treadle::passes
