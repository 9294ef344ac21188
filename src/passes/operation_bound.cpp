// What every operation can be, given what its operands can be.
//
// In: a node and the bounds of its operands. Out: its bound. Read Operation::bound() first: it goes
// by the rule of the operation; below it there is one row per operation where they differ.
#include "passes/operation_bound.h"

#include <algorithm>

#include "base/error.h"
#include "ir/ops_of_rule.h"

namespace treadle::passes {
namespace {

using ir::Node;
using ir::Rule;
using ir::Type;

IntegerRange sign(const IntegerRange& a) {
  return IntegerRange::between(a.low > 0    ? 1
                               : a.low == 0 ? 0
                                            : -1,
                               a.high < 0    ? -1
                               : a.high == 0 ? 0
                                             : 1);
}

Bound exclusive_or(const Bound& a, const Bound& b) {
  return of_truth((a.may_be_true && b.may_be_false) || (a.may_be_false && b.may_be_true),
                  (a.may_be_true && b.may_be_true) || (a.may_be_false && b.may_be_false));
}

class Operation {
 public:
  Operation(const ir::Graph& graph, const Node& node, const ir::PerNode<Bound>& bounds,
            const Counts& counts)
      : node_(node), from_(graph[node.operands[0]].type), bounds_(bounds), counts_(counts) {}

  [[nodiscard]] Bound bound() const {
    switch (ir::info(node_.op).rule) {
      case Rule::leaf: break;
      case Rule::arithmetic:
        return node_.type == Type::real ? real_function() : of_integer(arithmetic());
      case Rule::real:
      case Rule::rounding: return real_function();
      case Rule::integer: return integer_only();
      case Rule::comparison:
        return from_ == Type::real ? compare(node_.op, real(0), real(1))
                                   : compare(node_.op, integer(0), integer(1), counts_);
      case Rule::logical: return logical();
      case Rule::test: return test();
      case Rule::choice: return choice();
      case Rule::conversion: return conversion();
    }
    base::internal_error("bounds: a leaf is no operation");
  }

 private:
  [[nodiscard]] const Bound& operand(std::size_t i) const { return bounds_[node_.operands[i]]; }
  [[nodiscard]] const IntegerRange& integer(std::size_t i) const { return operand(i).integer; }
  [[nodiscard]] const RealRange& real(std::size_t i) const { return operand(i).real; }

  [[nodiscard]] Bound real_function() const {
    const std::size_t last =
        node_.operands.size() - 1;  // stands for the operands that are not there
    return of_real(apply(node_.op, real(0), real(std::min<std::size_t>(1, last)),
                         real(std::min<std::size_t>(2, last))));
  }

  // Of integers.
  [[nodiscard]] IntegerRange arithmetic() const {
    using ir::ArithmeticOp;
    switch (static_cast<ArithmeticOp>(node_.op)) {
      case ArithmeticOp::add: return add(integer(0), integer(1), counts_);
      case ArithmeticOp::sub: return subtract(integer(0), integer(1), counts_);
      case ArithmeticOp::mul: return multiply(integer(0), integer(1), counts_);
      case ArithmeticOp::neg: return negate(integer(0), counts_);
      case ArithmeticOp::abs: return absolute(integer(0), counts_);
      case ArithmeticOp::sign: return sign(integer(0));
      case ArithmeticOp::min: return minimum(integer(0), integer(1));
      case ArithmeticOp::max: return maximum(integer(0), integer(1));
      case ArithmeticOp::clamp: return minimum(maximum(integer(0), integer(1)), integer(2));
    }
    return IntegerRange::anything();
  }

  [[nodiscard]] Bound integer_only() const {
    using ir::IntegerOp;
    const auto division = [&](const IntegerRange& range) {
      Bound bound = of_integer(range);
      bound.may_be_poison = integer(1).contains(0);
      return bound;
    };
    switch (static_cast<IntegerOp>(node_.op)) {
      case IntegerOp::floor_div: return division(floor_divide(integer(0), integer(1), counts_));
      case IntegerOp::mod: return division(modulo(integer(0), integer(1), counts_));
      case IntegerOp::bit_and: return of_integer(bit_and(integer(0), integer(1), counts_));
      case IntegerOp::bit_or:
      case IntegerOp::bit_xor: return of_integer(bit_or_xor(integer(0), integer(1)));
      case IntegerOp::bit_not:
        return of_integer(subtract(IntegerRange::constant(-1), integer(0), counts_));
      case IntegerOp::shift_left: return of_integer(shift_left(integer(0), integer(1), counts_));
      case IntegerOp::shift_right: return of_integer(shift_right(integer(0), integer(1), counts_));
    }
    return {};
  }

  [[nodiscard]] Bound logical() const {
    using ir::LogicalOp;
    switch (static_cast<LogicalOp>(node_.op)) {
      case LogicalOp::logical_and: return conjunction(operand(0), operand(1));
      case LogicalOp::logical_or:
        return negation(conjunction(negation(operand(0)), negation(operand(1))));
      case LogicalOp::logical_xor: return exclusive_or(operand(0), operand(1));
      case LogicalOp::logical_not: return negation(operand(0));
    }
    return {};
  }

  [[nodiscard]] Bound test() const {
    using ir::TestOp;
    switch (static_cast<TestOp>(node_.op)) {
      case TestOp::isnan: return of_truth(real(0).may_be_nan, true);
      case TestOp::isinf:
        return of_truth(real(0).low == -RealRange::infinity || real(0).high == RealRange::infinity,
                        true);
    }
    return {};
  }

  [[nodiscard]] Bound choice() const {
    const Bound& condition = operand(0);
    Bound chosen = !condition.may_be_false  ? operand(1)
                   : !condition.may_be_true ? operand(2)
                                            : either(operand(1), operand(2), node_.type);
    // Where the condition is poisoned nothing is promised, so a bound on it is of no use there.
    chosen.may_be_poison |= condition.may_be_poison;
    return chosen;
  }

  [[nodiscard]] Bound conversion() const {
    using ir::ConversionOp;
    const Bound& a = operand(0);
    const int low = a.may_be_false ? 0 : 1;  // of a bool
    const int high = a.may_be_true ? 1 : 0;
    switch (static_cast<ConversionOp>(node_.op)) {
      case ConversionOp::to_float:
        return of_real(from_ == Type::integer ? to_real(a.integer) : RealRange::between(low, high));
      case ConversionOp::to_int:
        return of_integer(from_ == Type::real ? to_integer(a.real)
                                              : IntegerRange::between(low, high));
      case ConversionOp::to_bool:
        return from_ == Type::real
                   ? of_truth(a.real.may_be_nan || a.real.low != 0 || a.real.high != 0,
                              a.real.low <= 0 && a.real.high >= 0)
                   : of_truth(!a.integer.is_constant() || a.integer.low != 0,
                              a.integer.contains(0));
    }
    return {};
  }

  const Node& node_;
  const Type from_;  // of the first operand
  const ir::PerNode<Bound>& bounds_;
  const Counts& counts_;
};

}  // namespace

Bound bound_of_operation(const ir::Graph& graph, const Node& node, const ir::PerNode<Bound>& bounds,
                         const Counts& counts) {
  return Operation(graph, node, bounds, counts).bound();
}

}  // namespace treadle::passes
