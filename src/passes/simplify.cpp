// Rewrites a graph by identities that hold bit for bit.
//
// In: a graph. Out: an equal one. Nodes are rebuilt from the leaves up, each by the first rule that
// applies, until nothing changes. Read integer_arithmetic() first.
//
// Letters: i, j integers; m, n integer constants; x, y floats; c a float constant; p, r bools;
// a, b, d of any type; k a constant of any type. A rule that drops an operand asks for sound(): the
// operand's poison would be lost.
#include "passes/simplify.h"

#include <cmath>
#include <optional>

#include "base/error.h"
#include "passes/rewrite.h"

namespace treadle::passes {
namespace {

using ir::Builder;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Rule;
using ir::Type;

using namespace match;  // letters and conditions

// Conditions that one rule has to itself; the others are in passes/rewrite.h.

// A power of two whose reciprocal is a normal number in fp32: dividing and multiplying round the
// same real number.
auto exact_reciprocal(Letter it) {
  return [it](const Rewrite& at) {
    int exponent = 0;
    const double fraction = std::frexp(at.node(it).real(), &exponent);
    return std::fabs(fraction) == 0.5 && std::abs(exponent) < 120;
  };
}

auto whole(Letter it) {
  return [it](const Rewrite& at) {
    const Op op = at.node(it).op;
    return ir::info(op).rule == Rule::rounding || op == Op::to_float;
  };
}

auto product_fits(Letter one, Letter other) {
  return [=](const Rewrite& at) {
    std::int64_t product = 0;
    return !__builtin_mul_overflow(at.node(one).integer(), at.node(other).integer(), &product);
  };
}

void integer_arithmetic(Rewrite& rewrite) {
  rewrite(i + 0, i);
  rewrite((i + m) + n, i + fold(m + n));  // sums wrap alike
  rewrite(m + i, i + m, varies(i));
  rewrite(i - 0, i);
  rewrite(0 - i, -i);
  rewrite(i - i, 0, sound(i));
  rewrite(i * 1, i);
  rewrite(i * -1, -i);
  rewrite(i * 0, 0, sound(i));
  rewrite(m * i, i * m, varies(i));
  rewrite(-(-i), i);
  rewrite(-(i - j), j - i);
  rewrite(abs(i), i, never_negative(i));
  rewrite(abs(-i), abs(i));
  rewrite(min(i, i), i);
  rewrite(max(i, i), i);
}

void real_arithmetic(Rewrite& rewrite) {
  rewrite(x + -0.0, x);  // x + 0.0 stays: it turns -0 into 0
  rewrite(x + -y, x - y);
  rewrite(c + x, x + c, varies(x));
  rewrite(x - 0.0, x);
  rewrite(x - -y, x + y);
  rewrite(x * 1.0, x);  // x * 0.0 stays: it may be NaN or -0
  rewrite(x * -1.0, -x);
  rewrite(c * x, x * c, varies(x));
  rewrite(-(-x), x);
  rewrite(abs(-x), abs(x));
  rewrite(abs(abs(x)), abs(x));
  // min(x, x) stays: at NaN its two derivatives add up to 2.
}

void real_function(Rewrite& rewrite) {
  rewrite(x / 1.0, x);
  rewrite(x / -1.0, -x);
  rewrite(x / c, x * fold(1.0 / c), exact_reciprocal(c));
  rewrite(pow(x, 1.0), x);
  rewrite(pow(x, 0.0), 1.0, sound(x));  // also of a NaN
}

void rounding(Rewrite& rewrite, Op op) { rewrite(call(op, x), x, whole(x)); }

void integer_only(Rewrite& rewrite) {
  rewrite(floor_div(i, 1), i);
  rewrite(floor_div(i, -1), -i);
  rewrite(floor_div(floor_div(i, m), n), floor_div(i, fold(m * n)),  //
          positive(m), positive(n), product_fits(m, n));
  rewrite(i % 1, 0, sound(i));
  rewrite(i % -1, 0, sound(i));
  rewrite((i % m) % m, i % m);
  rewrite(i & -1, i);
  rewrite(i & i, i);
  rewrite(i & 0, 0, sound(i));
  rewrite(m & i, i & m, varies(i));
  rewrite(i | 0, i);
  rewrite(i | i, i);
  rewrite(i | -1, -1, sound(i));
  rewrite(m | i, i | m, varies(i));
  rewrite(i ^ 0, i);
  rewrite(i ^ i, 0, sound(i));
  rewrite(m ^ i, i ^ m, varies(i));
  rewrite(~~i, i);
  rewrite(i << 0, i);
  rewrite(i >> 0, i);
}

// The comparison with its sides exchanged.
Op mirrored(Op op) {
  if (op == Op::lt) return Op::gt;
  if (op == Op::le) return Op::ge;
  if (op == Op::gt) return Op::lt;
  if (op == Op::ge) return Op::le;
  return op;
}

void comparison(Rewrite& rewrite, Op op) {
  const auto is = [op](auto left, auto right) { return call(op, left, right); };
  const bool true_if_equal = op == Op::eq || op == Op::le || op == Op::ge;
  const bool true_if_above = op == Op::ne || op == Op::gt || op == Op::ge;
  rewrite(is(k, a), call(mirrored(op), a, k), varies(a));
  rewrite(is(i, i), true_if_equal, sound(i));           // of floats not: a NaN is not itself
  rewrite(is(i - j, 0), is(i, j), small(i), small(j));  // small: nothing wraps
  rewrite(is(i + m, n), is(i, fold(n - m)), small(i), small(m), small(n));
  rewrite(is(i, m), true_if_above, never_negative(i), negative(m), sound(i));
  rewrite(i >= 0, true, never_negative(i), sound(i));
  rewrite(i < 0, false, never_negative(i), sound(i));
}

void logical(Rewrite& rewrite) {
  rewrite(!!p, p);
  rewrite(!(a == b), a != b);
  rewrite(!(a != b), a == b);
  rewrite(!(i < j), i >= j);  // of floats not: with a NaN both are false
  rewrite(!(i <= j), i > j);
  rewrite(!(i > j), i <= j);
  rewrite(!(i >= j), i < j);

  rewrite(k && p, p && k, varies(p));
  rewrite(p && false, false);  // also if p is poisoned
  rewrite(p && true, p);
  rewrite(p && p, p);
  rewrite(p && !p, false, sound(p));
  rewrite(!p && p, false, sound(p));
  rewrite((p && r) && p, p && r);
  rewrite((p && r) && r, p && r);

  rewrite(k || p, p || k, varies(p));
  rewrite(p || true, true);  // also if p is poisoned
  rewrite(p || false, p);
  rewrite(p || p, p);
  rewrite(p || !p, true, sound(p));
  rewrite(!p || p, true, sound(p));
  rewrite((p || r) || p, p || r);
  rewrite((p || r) || r, p || r);

  rewrite(logical_xor(k, p), logical_xor(p, k), varies(p));
  rewrite(logical_xor(p, false), p);
  rewrite(logical_xor(p, true), !p);
  rewrite(logical_xor(p, p), false, sound(p));
}

// An integer or a bool as a float is neither NaN nor infinite.
void test(Rewrite& rewrite) {
  rewrite(isnan(to_float(a)), false, sound(a));
  rewrite(isinf(to_float(a)), false, sound(a));
}

void choice(Rewrite& rewrite) {
  rewrite(where(true, a, b), a);
  rewrite(where(false, a, b), b);
  rewrite(where(p, a, a), a, sound(p));
  rewrite(where(!p, a, b), where(p, b, a));
  rewrite(where(p, where(p, a, b), d), where(p, a, d));
  rewrite(where(p, a, where(p, b, d)), where(p, a, d));
  rewrite(where(p, true, false), p);
  rewrite(where(p, false, true), !p);
  rewrite(where(p, r, false), p && r, sound(p));  // poison && false is false, the choice is poison
  rewrite(where(p, true, r), p || r, sound(p));
}

// A bool is 0 or 1 in every type; an integer is zero in every type or in none.
void conversion(Rewrite& rewrite) {
  rewrite(to_float(to_int(p)), to_float(p));
  rewrite(to_int(to_float(p)), to_int(p));
  rewrite(to_bool(to_int(p)), p);
  rewrite(to_bool(to_float(p)), p);
  rewrite(to_bool(to_float(i)), to_bool(i));
}

void try_rules(Rewrite& rewrite, const Node& node) {
  switch (ir::info(node.op).rule) {
    case Rule::leaf: return;
    case Rule::arithmetic:
      return node.type == Type::integer ? integer_arithmetic(rewrite) : real_arithmetic(rewrite);
    case Rule::real: return real_function(rewrite);
    case Rule::rounding: return rounding(rewrite, node.op);
    case Rule::integer: return integer_only(rewrite);
    case Rule::comparison: return comparison(rewrite, node.op);
    case Rule::logical: return logical(rewrite);
    case Rule::test: return test(rewrite);
    case Rule::choice: return choice(rewrite);
    case Rule::conversion: return conversion(rewrite);
  }
}

class Simplifier {
 public:
  Graph run(const Graph& graph) {
    ir::PerNode<NodeId> to;
    for (NodeId id = 0; id < graph.size(); ++id) to.push_back(simpler(graph, id, to));
    std::vector<NodeId> outputs;
    for (const NodeId output : graph.outputs()) outputs.push_back(to[output]);
    return make_.finish(outputs);
  }

 private:
  NodeId simpler(const Graph& graph, NodeId id, const ir::PerNode<NodeId>& to) {
    Node node = graph[id];
    if (ir::info(node.op).rule == Rule::leaf) return make_.copy(graph, id, to);
    for (NodeId& operand : node.operands) operand = to[operand];
    if (const auto value = passes::fold(make_, node.op, node.operands)) return *value;
    Rewrite rewrite(make_, properties_, node);
    try_rules(rewrite, node);
    if (rewrite.result()) return *rewrite.result();
    // Refuses a divisor that turned out to be zero like one that was written so.
    return make_.apply(node.op, node.operands);
  }

  Builder make_;
  NodeProperties properties_{make_};
};

}  // namespace

Graph simplify(const Graph& graph) {
  // Every rule makes a graph smaller or moves it towards one fixed form, so this ends soon.
  Graph current = graph;
  for (int round = 0; round < 100; ++round) {
    Graph next = Simplifier().run(current);
    if (next == current) return current;
    current = std::move(next);
  }
  base::internal_error("simplify: no end after 100 rounds on a graph of {} nodes", graph.size());
}

}  // namespace treadle::passes
