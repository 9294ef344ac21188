// Combines bounds: comparisons, truth, and one of two.
//
// In: ranges or bounds of operands. Out: the bound of the result.
#include "passes/bound.h"

#include "base/error.h"

namespace treadle::passes {
namespace {

// Which of a < b, a == b, a > b can happen, and whether none of them may hold (NaN).
struct Order {
  bool less, equal, greater;
  bool unordered = false;
};

Bound compare(ir::Op op, const Order& can) {
  if (op == ir::Op::eq) return of_truth(can.equal, can.less || can.greater || can.unordered);
  if (op == ir::Op::ne) return of_truth(can.less || can.greater || can.unordered, can.equal);
  if (op == ir::Op::lt) return of_truth(can.less, can.equal || can.greater || can.unordered);
  if (op == ir::Op::le) return of_truth(can.less || can.equal, can.greater || can.unordered);
  if (op == ir::Op::gt) return of_truth(can.greater, can.less || can.equal || can.unordered);
  if (op == ir::Op::ge) return of_truth(can.greater || can.equal, can.less || can.unordered);
  base::internal_error("compare: {}", ir::info(op).text);
}

Order order_of(const IntegerRange& a, const IntegerRange& b, const Counts& counts) {
  Order can{a.low < b.high, a.low <= b.high && b.low <= a.high, a.high > b.low};
  if (int{can.less} + int{can.equal} + int{can.greater} == 1) return can;  // no need to look closer
  const IntegerRange difference = subtract(a, b, counts);
  // Only a difference that cannot wrap has the sign of the comparison.
  if (difference.low > IntegerRange::lowest || difference.high < IntegerRange::highest) {
    can.less = can.less && difference.low < 0;
    can.equal = can.equal && difference.contains(0);
    can.greater = can.greater && difference.high > 0;
  }
  return can;
}

Order order_of(const RealRange& a, const RealRange& b) {
  return {a.low < b.high, a.low <= b.high && b.low <= a.high, a.high > b.low,
          a.may_be_nan || b.may_be_nan};
}

}  // namespace

Bound compare(ir::Op op, const IntegerRange& a, const IntegerRange& b, const Counts& counts) {
  return compare(op, order_of(a, b, counts));
}

Bound compare(ir::Op op, const RealRange& a, const RealRange& b) {
  return compare(op, order_of(a, b));
}

Bound conjunction(const Bound& a, const Bound& b) {
  Bound both = of_truth(a.may_be_true && b.may_be_true, a.may_be_false || b.may_be_false);
  const bool a_decides = !a.may_be_true && !a.may_be_poison;
  const bool b_decides = !b.may_be_true && !b.may_be_poison;
  both.may_be_poison = (a.may_be_poison || b.may_be_poison) && !a_decides && !b_decides;
  return both;
}

Bound negation(const Bound& a) {
  Bound result = of_truth(a.may_be_false, a.may_be_true);
  result.may_be_poison = a.may_be_poison;
  return result;
}

Bound either(const Bound& a, const Bound& b, ir::Type type) {
  Bound result;
  switch (type) {
    case ir::Type::real: result.real = join(a.real, b.real); break;
    case ir::Type::integer: result.integer = join(a.integer, b.integer); break;
    case ir::Type::boolean:
      result = of_truth(a.may_be_true || b.may_be_true, a.may_be_false || b.may_be_false);
      break;
  }
  result.may_be_poison = a.may_be_poison || b.may_be_poison;
  return result;
}

}  // namespace treadle::passes
