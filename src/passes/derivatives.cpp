// The derivative of every operation, as in PyTorch also at ties and poles.
//
// In: a node and its gradient. Out: the gradients of its operands. Read Row::function() first: y is
// the node, x and z are its operands, g is its gradient.
#include "passes/derivatives.h"

#include <numbers>

#include "base/error.h"
#include "ir/ops_of_rule.h"

namespace treadle::passes {

using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Rule;

namespace {

constexpr NodeId none = -1;

// Expressions read like formulas: every E is a node of one builder.
struct E {
  ir::Builder* make;
  NodeId id;
};

E apply(Op op, E a) { return {a.make, (*a.make)(op, a.id)}; }
E apply(Op op, E a, E b) { return {a.make, (*a.make)(op, a.id, b.id)}; }
E number(E like, double value) { return {like.make, like.make->real(value)}; }
E operator+(E a, E b) { return apply(Op::add, a, b); }
E operator-(E a, E b) { return apply(Op::sub, a, b); }
E operator*(E a, E b) { return apply(Op::mul, a, b); }
E operator/(E a, E b) { return apply(Op::div, a, b); }
E operator-(E a) { return apply(Op::neg, a); }
E operator*(double a, E b) { return b * number(b, a); }
E operator+(E a, double b) { return a + number(a, b); }
E operator-(double a, E b) { return number(b, a) - b; }
E both(E a, E b) { return apply(Op::logical_and, a, b); }
E where(E c, E a, E b) { return {c.make, (*c.make)(Op::where, c.id, a.id, b.id)}; }

using Gradients = std::vector<NodeId>;

// One application of an operation, y = op(x, z, third), and the gradient g of y.
struct Row {
  Row(ir::Builder& make, NodeId id, NodeId grad)
      : node(make[id]),
        y{&make, id},
        g{&make, grad},
        x(operand(0)),
        z(operand(1)),
        zero(number(g, 0.0)) {}

  [[nodiscard]] Gradients gradients() const {
    switch (ir::info(node.op).rule) {
      case Rule::arithmetic: return arithmetic();
      case Rule::real: return function();
      case Rule::rounding:  // flat between its steps
      case Rule::leaf:
      case Rule::integer:  // integers and bools have no derivative
      case Rule::comparison:
      case Rule::logical:
      case Rule::test:
      case Rule::conversion: return nothing();
      case Rule::choice: break;  // derive keeps its sides apart
    }
    base::internal_error("derivatives: {} has no row", ir::info(node.op).text);
  }

  [[nodiscard]] Gradients arithmetic() const {
    using ir::ArithmeticOp;
    switch (static_cast<ArithmeticOp>(node.op)) {
      case ArithmeticOp::add: return two(g, g);
      case ArithmeticOp::sub: return two(g, -g);
      case ArithmeticOp::mul: return two(g * z, g * x);
      case ArithmeticOp::neg: return one(-g);
      case ArithmeticOp::abs: return one(g * apply(Op::sign, x));
      case ArithmeticOp::sign: return nothing();
      case ArithmeticOp::min: return extreme(Op::gt);
      case ArithmeticOp::max: return extreme(Op::lt);
      case ArithmeticOp::clamp: return clamp(z, operand(2));
    }
    return {};
  }

  [[nodiscard]] Gradients function() const {
    using ir::RealOp;
    switch (static_cast<RealOp>(node.op)) {
      case RealOp::div: return two(g / z, -g * (y / z));
      case RealOp::pow: return pow();
      case RealOp::sqrt: return one(g / (2.0 * y));
      case RealOp::rsqrt: return one(-0.5 * g * (y * y * y));
      case RealOp::exp: return one(g * y);
      case RealOp::exp2: return one(g * (std::numbers::ln2 * y));
      case RealOp::expm1: return one(g * (y + 1.0));
      case RealOp::log: return one(g / x);
      case RealOp::log2: return one(g / (std::numbers::ln2 * x));
      case RealOp::log1p: return one(g / (x + 1.0));
      case RealOp::sin: return one(g * apply(Op::cos, x));
      case RealOp::cos: return one(-g * apply(Op::sin, x));
      case RealOp::tan: return one(g * (y * y + 1.0));
      case RealOp::asin: return one(g * apply(Op::rsqrt, 1.0 - x * x));
      case RealOp::acos: return one(-g * apply(Op::rsqrt, 1.0 - x * x));
      case RealOp::atan: return one(g / (x * x + 1.0));
      case RealOp::atan2: return atan2();
      case RealOp::sinh: return one(g * apply(Op::cosh, x));
      case RealOp::cosh: return one(g * apply(Op::sinh, x));
      case RealOp::tanh: return one(g * (1.0 - y * y));
      case RealOp::sigmoid: return one(g * (y * (1.0 - y)));
      case RealOp::erf: return one(g * (2.0 * std::numbers::inv_sqrtpi * apply(Op::exp, -(x * x))));
    }
    return {};
  }

  // min and max: the loser gets nothing, a tie shares half and half; with a NaN both get all.
  [[nodiscard]] Gradients extreme(Op loses) const {
    const E tie = apply(Op::eq, x, z);
    const E share = where(tie, 0.5 * g, g);
    return two(where(apply(loses, x, z), zero, share), where(apply(loses, z, x), zero, share));
  }

  [[nodiscard]] Gradients clamp(E low, E high) const {
    const E inside = both(apply(Op::ge, x, low), apply(Op::le, x, high));
    const E at_low = both(apply(Op::lt, low, high), apply(Op::lt, x, low));
    const E at_high = apply(Op::logical_or, apply(Op::gt, x, high), apply(Op::lt, high, low));
    return {where(inside, g, zero).id, where(at_low, g, zero).id, where(at_high, g, zero).id};
  }

  // x ** z
  [[nodiscard]] Gradients pow() const {
    const E flat = apply(Op::eq, z, zero);
    const E base = where(flat, zero, g * (z * apply(Op::pow, x, z + -1.0)));
    const E at_zero = both(apply(Op::ge, z, zero), apply(Op::eq, x, zero));
    return two(base, g * where(at_zero, zero, y * apply(Op::log, x)));
  }

  // The angle of the point (z, x).
  [[nodiscard]] Gradients atan2() const {
    const E origin = both(apply(Op::eq, x, zero), apply(Op::eq, z, zero));
    const E square = x * x + z * z;
    return two(where(origin, zero, g * (z / square)), where(origin, zero, -g * (x / square)));
  }

  static Gradients one(E a) { return {a.id}; }
  static Gradients two(E a, E b) { return {a.id, b.id}; }
  [[nodiscard]] Gradients nothing() const { return Gradients(node.operands.size(), none); }

  [[nodiscard]] E operand(std::size_t i) const {
    return {g.make, i < node.operands.size() ? node.operands[i] : none};
  }

  const Node node;  // a copy: the builder grows
  const E y, g, x, z, zero;
};

}  // namespace

std::vector<NodeId> derivatives(ir::Builder& make, NodeId node, NodeId grad) {
  return Row(make, node, grad).gradients();
}

}  // namespace treadle::passes
