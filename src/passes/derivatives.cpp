// In: a node and its gradient; out: the gradients of its operands, as in PyTorch also at ties and
// poles.
#include "passes/slopes.h"

#include <numbers>

#include "base/error.h"

namespace treadle::passes {

using ir::Node;
using ir::NodeId;
using ir::Op;

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

}  // namespace

std::vector<NodeId> slopes(ir::Builder& make, NodeId node_id, NodeId grad) {
  const Node node = make[node_id];  // a copy: the builder grows below
  const E y{&make, node_id};
  const E g{&make, grad};
  const auto operand = [&](std::size_t i) {
    return E{&make, i < node.operands.size() ? node.operands[i] : none};
  };
  const E x = operand(0);
  const E z = operand(1);
  const E zero = number(g, 0.0);
  const auto one = [](E a) { return std::vector<NodeId>{a.id}; };
  const auto two = [](E a, E b) { return std::vector<NodeId>{a.id, b.id}; };
  const auto nothing = [&] { return std::vector<NodeId>(node.operands.size(), none); };

  switch (node.op) {
    case Op::input:
    case Op::constant:
    case Op::load: return nothing();

    case Op::add: return two(g, g);
    case Op::sub: return two(g, -g);
    case Op::mul: return two(g * z, g * x);
    case Op::neg: return one(-g);
    case Op::abs: return one(g * apply(Op::sign, x));
    case Op::sign: return nothing();
    case Op::min:
    case Op::max: {
      // The loser gets nothing, a tie shares half and half; with a NaN both get all.
      const E tie = apply(Op::eq, x, z);
      const E share = where(tie, 0.5 * g, g);
      const Op loses = node.op == Op::max ? Op::lt : Op::gt;
      return two(where(apply(loses, x, z), zero, share), where(apply(loses, z, x), zero, share));
    }
    case Op::clamp: {
      const E low = z;
      const E high = operand(2);
      const E inside = both(apply(Op::ge, x, low), apply(Op::le, x, high));
      const E at_low = both(apply(Op::lt, low, high), apply(Op::lt, x, low));
      const E at_high = apply(Op::logical_or, apply(Op::gt, x, high), apply(Op::lt, high, low));
      return {where(inside, g, zero).id, where(at_low, g, zero).id, where(at_high, g, zero).id};
    }

    case Op::div: return two(g / z, -g * (y / z));
    case Op::pow: {
      const E flat = apply(Op::eq, z, zero);
      const E base = where(flat, zero, g * (z * apply(Op::pow, x, z + -1.0)));
      const E at_zero = both(apply(Op::ge, z, zero), apply(Op::eq, x, zero));
      return two(base, g * where(at_zero, zero, y * apply(Op::log, x)));
    }
    case Op::sqrt: return one(g / (2.0 * y));
    case Op::rsqrt: return one(-0.5 * g * (y * y * y));
    case Op::exp: return one(g * y);
    case Op::exp2: return one(g * (std::numbers::ln2 * y));
    case Op::expm1: return one(g * (y + 1.0));
    case Op::log: return one(g / x);
    case Op::log2: return one(g / (std::numbers::ln2 * x));
    case Op::log1p: return one(g / (x + 1.0));
    case Op::sin: return one(g * apply(Op::cos, x));
    case Op::cos: return one(-g * apply(Op::sin, x));
    case Op::tan: return one(g * (y * y + 1.0));
    case Op::asin: return one(g * apply(Op::rsqrt, 1.0 - x * x));
    case Op::acos: return one(-g * apply(Op::rsqrt, 1.0 - x * x));
    case Op::atan: return one(g / (x * x + 1.0));
    case Op::atan2: {
      const E origin = both(apply(Op::eq, x, zero), apply(Op::eq, z, zero));
      const E square = x * x + z * z;
      return two(where(origin, zero, g * (z / square)), where(origin, zero, -g * (x / square)));
    }
    case Op::sinh: return one(g * apply(Op::cosh, x));
    case Op::cosh: return one(g * apply(Op::sinh, x));
    case Op::tanh: return one(g * (1.0 - y * y));
    case Op::sigmoid: return one(g * (y * (1.0 - y)));
    case Op::erf: return one(g * (2.0 * std::numbers::inv_sqrtpi * apply(Op::exp, -(x * x))));

    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc: return nothing();  // flat between their steps

    case Op::floor_div:
    case Op::mod:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
    case Op::bit_not:
    case Op::shift_left:
    case Op::shift_right:
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_xor:
    case Op::logical_not:
    case Op::isnan:
    case Op::isinf:
    case Op::to_float:
    case Op::to_int:
    case Op::to_bool: return nothing();  // integers and bools have no slope

    case Op::where: break;  // derive keeps its sides apart
  }
  base::internal_error("slopes: {} has no row", ir::info(node.op).text);
}

}  // namespace treadle::passes
