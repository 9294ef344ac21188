// In: a graph; out: an equal one. Nodes are rebuilt from the leaves up, each through rewrite(),
// until nothing changes. Read rewrite() first: it names the rules by kind of operation; each rule
// states an identity that holds bit for bit.
#include "passes/simplify.h"

#include <cmath>
#include <optional>

#include "base/error.h"
#include "ir/meaning.h"
#include "passes/facts.h"
#include "passes/fold.h"

namespace treadle::passes {
namespace {

using ir::Builder;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Rule;
using ir::Type;

using Maybe = std::optional<NodeId>;

// The comparison with its sides exchanged, and the one that is true where this is false.
Op mirrored(Op op) {
  if (op == Op::lt) return Op::gt;
  if (op == Op::le) return Op::ge;
  if (op == Op::gt) return Op::lt;
  if (op == Op::ge) return Op::le;
  return op;
}

Op opposite(Op op) {
  if (op == Op::lt) return Op::ge;
  if (op == Op::le) return Op::gt;
  if (op == Op::gt) return Op::le;
  if (op == Op::ge) return Op::lt;
  return op == Op::eq ? Op::ne : Op::eq;
}

class Simplifier {
 public:
  Graph run(const Graph& graph) {
    ir::PerNode<NodeId> to;
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph[id];
      std::vector<NodeId> operands;
      for (const NodeId operand : node.operands) operands.push_back(to[operand]);
      Maybe better;
      if (ir::info(node.op).rule != Rule::leaf) {
        better = fold(make_, node.op, operands);
        if (!better) better = rewrite(node, operands);
      }
      to.push_back(better ? *better : make_.copy(graph, id, to));
    }
    std::vector<NodeId> outputs;
    for (const NodeId output : graph.outputs()) outputs.push_back(to[output]);
    return make_.finish(outputs);
  }

 private:
  using Ids = const std::vector<NodeId>&;

  Maybe rewrite(const Node& node, Ids x) {
    switch (ir::info(node.op).rule) {
      case Rule::leaf: return {};
      case Rule::arithmetic:
        return node.type == Type::integer ? integer_arithmetic(node.op, x)
                                          : real_arithmetic(node.op, x);
      case Rule::real: return real_function(node.op, x);
      case Rule::rounding: return rounding(x);
      case Rule::integer: return integer(node.op, x);
      case Rule::comparison: return comparison(node.op, x);
      case Rule::logical: return logical(node.op, x);
      case Rule::test: return test(x);
      case Rule::choice: return choice(node.type, x);
      case Rule::conversion: return conversion(node.op, x);
    }
    return {};
  }

  // Questions about an operand.
  bool is(NodeId id, Op op) const { return make_[id].op == op; }
  NodeId operand(NodeId id, std::size_t i) const { return make_[id].operands[i]; }
  bool constant(NodeId id) const { return facts_.is_constant(id); }
  bool positive_constant(NodeId id) const { return constant(id) && make_[id].integer() > 0; }
  bool sound(NodeId id) { return facts_.sound(id); }

  Maybe constant_to_the_right(Op op, Ids x) {
    if (constant(x[0]) && !constant(x[1])) return make_(op, x[1], x[0]);
    return {};
  }

  Maybe integer_arithmetic(Op op, Ids x) {
    using ir::meaning::raw;
    using ir::meaning::wrap;
    if (op == Op::add) {
      if (facts_.is_integer(x[1], 0)) return x[0];
      if (constant(x[1]) && is(x[0], Op::add) && constant(operand(x[0], 1))) {
        const std::int64_t inner = make_[operand(x[0], 1)].integer();
        const std::int64_t outer = make_[x[1]].integer();
        return make_(Op::add, operand(x[0], 0), make_.integer(wrap(raw(inner) + raw(outer))));
      }
      return constant_to_the_right(op, x);
    }
    if (op == Op::sub) {
      if (facts_.is_integer(x[1], 0)) return x[0];
      if (facts_.is_integer(x[0], 0)) return make_(Op::neg, x[1]);
      if (x[0] == x[1] && sound(x[0])) return make_.integer(0);
    }
    if (op == Op::mul) {
      if (facts_.is_integer(x[1], 1)) return x[0];
      if (facts_.is_integer(x[1], -1)) return make_(Op::neg, x[0]);
      if (facts_.is_integer(x[1], 0) && sound(x[0])) return x[1];
      return constant_to_the_right(op, x);
    }
    if (op == Op::neg && is(x[0], Op::neg)) return operand(x[0], 0);
    if (op == Op::neg && is(x[0], Op::sub))
      return make_(Op::sub, operand(x[0], 1), operand(x[0], 0));
    if (op == Op::abs) {
      if (facts_.never_negative(x[0])) return x[0];
      if (is(x[0], Op::neg)) return make_(Op::abs, operand(x[0], 0));
    }
    if ((op == Op::min || op == Op::max) && x[0] == x[1]) return x[0];
    return {};
  }

  Maybe real_arithmetic(Op op, Ids x) {
    if (op == Op::add) {
      if (facts_.is_real(x[1], -0.0)) return x[0];  // +0.0 would turn -0 into +0
      if (is(x[1], Op::neg)) return make_(Op::sub, x[0], operand(x[1], 0));
      return constant_to_the_right(op, x);
    }
    if (op == Op::sub) {
      if (facts_.is_real(x[1], 0.0)) return x[0];
      if (is(x[1], Op::neg)) return make_(Op::add, x[0], operand(x[1], 0));
    }
    if (op == Op::mul) {
      if (facts_.is_real(x[1], 1.0)) return x[0];
      if (facts_.is_real(x[1], -1.0)) return make_(Op::neg, x[0]);
      return constant_to_the_right(op, x);
    }
    if (op == Op::neg && is(x[0], Op::neg)) return operand(x[0], 0);
    if (op == Op::abs && (is(x[0], Op::neg) || is(x[0], Op::abs)))
      return make_(Op::abs, operand(x[0], 0));
    // min(x, x) stays: at NaN its two slopes add up to 2.
    return {};
  }

  Maybe real_function(Op op, Ids x) {
    if (op == Op::div) {
      if (facts_.is_real(x[1], 1.0)) return x[0];
      if (facts_.is_real(x[1], -1.0)) return make_(Op::neg, x[0]);
      if (constant(x[1]) && exact_reciprocal(make_[x[1]].real())) {
        return make_(Op::mul, x[0], make_.real(1.0 / make_[x[1]].real()));
      }
    }
    if (op == Op::pow) {
      if (facts_.is_real(x[1], 1.0)) return x[0];
      if (facts_.is_real(x[1], 0.0) && sound(x[0])) return make_.real(1.0);
    }
    return {};
  }

  // A power of two whose reciprocal is a normal number in fp32: dividing and multiplying round the
  // same real number.
  static bool exact_reciprocal(double value) {
    int exponent = 0;
    return std::fabs(std::frexp(value, &exponent)) == 0.5 && std::abs(exponent) < 120;
  }

  Maybe rounding(Ids x) {
    const bool whole = ir::info(make_[x[0]].op).rule == Rule::rounding || is(x[0], Op::to_float);
    if (whole) return x[0];
    return {};
  }

  Maybe integer(Op op, Ids x) {
    // A divisor that turned out to be zero is refused like one that was written so.
    if ((op == Op::floor_div || op == Op::mod) && facts_.is_integer(x[1], 0))
      return make_.apply(op, x);
    if (op == Op::floor_div) return floor_div(x);
    if (op == Op::mod) {
      if ((facts_.is_integer(x[1], 1) || facts_.is_integer(x[1], -1)) && sound(x[0]))
        return make_.integer(0);
      if (is(x[0], Op::mod) && operand(x[0], 1) == x[1] && constant(x[1])) return x[0];
      return {};
    }
    if (op == Op::bit_and) {
      if (facts_.is_integer(x[1], -1) || x[0] == x[1]) return x[0];
      if (facts_.is_integer(x[1], 0) && sound(x[0])) return x[1];
      return constant_to_the_right(op, x);
    }
    if (op == Op::bit_or) {
      if (facts_.is_integer(x[1], 0) || x[0] == x[1]) return x[0];
      if (facts_.is_integer(x[1], -1) && sound(x[0])) return x[1];
      return constant_to_the_right(op, x);
    }
    if (op == Op::bit_xor) {
      if (facts_.is_integer(x[1], 0)) return x[0];
      if (x[0] == x[1] && sound(x[0])) return make_.integer(0);
      return constant_to_the_right(op, x);
    }
    if (op == Op::bit_not && is(x[0], Op::bit_not)) return operand(x[0], 0);
    if ((op == Op::shift_left || op == Op::shift_right) && facts_.is_integer(x[1], 0)) return x[0];
    return {};
  }

  Maybe floor_div(Ids x) {
    if (facts_.is_integer(x[1], 1)) return x[0];
    if (facts_.is_integer(x[1], -1)) return make_(Op::neg, x[0]);
    if (is(x[0], Op::floor_div) && positive_constant(x[1]) && positive_constant(operand(x[0], 1))) {
      const std::int64_t inner = make_[operand(x[0], 1)].integer();
      const std::int64_t outer = make_[x[1]].integer();
      if (inner <= std::numeric_limits<std::int64_t>::max() / outer) {
        return make_(Op::floor_div, operand(x[0], 0), make_.integer(inner * outer));
      }
    }
    return {};
  }

  Maybe comparison(Op op, Ids x) {
    if (constant(x[0]) && !constant(x[1])) return make_(mirrored(op), x[1], x[0]);
    if (make_.type(x[0]) != Type::integer) return {};
    if (x[0] == x[1] && sound(x[0]))
      return make_.boolean(op == Op::eq || op == Op::le || op == Op::ge);
    if (!constant(x[1])) return {};
    const std::int64_t c = make_[x[1]].integer();

    // a - b against 0 is a against b where the difference cannot wrap.
    if (c == 0 && is(x[0], Op::sub) && facts_.small(operand(x[0], 0)) &&
        facts_.small(operand(x[0], 1))) {
      return make_(op, operand(x[0], 0), operand(x[0], 1));
    }
    // (a + k) against c is a against c - k, likewise.
    const bool shifted = is(x[0], Op::add) && constant(operand(x[0], 1));
    if (shifted && facts_.small(operand(x[0], 0)) && facts_.small(operand(x[0], 1)) &&
        facts_.small(x[1])) {
      return make_(op, operand(x[0], 0), make_.integer(c - make_[operand(x[0], 1)].integer()));
    }
    if (facts_.never_negative(x[0]) && sound(x[0])) {
      if (c < 0) return make_.boolean(op == Op::ne || op == Op::gt || op == Op::ge);
      if (c == 0 && op == Op::ge) return make_.boolean(true);
      if (c == 0 && op == Op::lt) return make_.boolean(false);
    }
    return {};
  }

  Maybe logical(Op op, Ids x) {
    const auto negations = [&](NodeId a, NodeId b) {
      return is(b, Op::logical_not) && operand(b, 0) == a;
    };
    if (op == Op::logical_not) {
      if (is(x[0], Op::logical_not)) return operand(x[0], 0);
      const Node& inner = make_[x[0]];
      if (ir::info(inner.op).rule != Rule::comparison) return {};
      // With a NaN both a < b and a >= b are false; == and != are opposites always.
      const bool ordered = make_.type(inner.operands[0]) == Type::integer;
      if (!ordered && inner.op != Op::eq && inner.op != Op::ne) return {};
      return make_(opposite(inner.op), NodeId{inner.operands[0]}, NodeId{inner.operands[1]});
    }
    if (const Maybe moved = constant_to_the_right(op, x)) return moved;
    if (op == Op::logical_xor) {
      if (facts_.is_boolean(x[1], false)) return x[0];
      if (facts_.is_boolean(x[1], true)) return make_(Op::logical_not, x[0]);
      if (x[0] == x[1] && sound(x[0])) return make_.boolean(false);
      return {};
    }
    const bool deciding = op == Op::logical_or;
    if (facts_.is_boolean(x[1], deciding)) return x[1];
    if (facts_.is_boolean(x[1], !deciding) || x[0] == x[1]) return x[0];
    if ((negations(x[0], x[1]) || negations(x[1], x[0])) && sound(x[0]))
      return make_.boolean(deciding);
    if (is(x[0], op) && (operand(x[0], 0) == x[1] || operand(x[0], 1) == x[1])) return x[0];
    return {};
  }

  // An integer as a float is neither NaN nor infinite.
  Maybe test(Ids x) {
    if (is(x[0], Op::to_float) && sound(x[0])) return make_.boolean(false);
    return {};
  }

  Maybe choice(Type type, Ids x) {
    if (facts_.is_boolean(x[0], true)) return x[1];
    if (facts_.is_boolean(x[0], false)) return x[2];
    if (x[1] == x[2] && sound(x[0])) return x[1];
    if (is(x[0], Op::logical_not)) return make_(Op::where, operand(x[0], 0), x[2], x[1]);
    if (is(x[1], Op::where) && operand(x[1], 0) == x[0])
      return make_(Op::where, x[0], operand(x[1], 1), x[2]);
    if (is(x[2], Op::where) && operand(x[2], 0) == x[0])
      return make_(Op::where, x[0], x[1], operand(x[2], 2));
    if (type != Type::boolean) return {};
    const bool yes_is_true = facts_.is_boolean(x[1], true);
    const bool no_is_false = facts_.is_boolean(x[2], false);
    if (yes_is_true && no_is_false) return x[0];
    if (facts_.is_boolean(x[1], false) && facts_.is_boolean(x[2], true))
      return make_(Op::logical_not, x[0]);
    // A poisoned condition poisons where() but not false && poison.
    if (no_is_false && sound(x[0])) return make_(Op::logical_and, x[0], x[1]);
    if (yes_is_true && sound(x[0])) return make_(Op::logical_or, x[0], x[2]);
    return {};
  }

  Maybe conversion(Op op, Ids x) {
    const bool widened = is(x[0], Op::to_int) || is(x[0], Op::to_float);
    if (!widened) return {};
    const NodeId inner = operand(x[0], 0);
    // A bool is 0 or 1 in every type; an integer is zero in every type or in none.
    if (make_.type(inner) == Type::boolean) return make_.apply(op, {inner});
    if (op == Op::to_bool && make_.type(inner) == Type::integer) return make_.apply(op, {inner});
    return {};
  }

  Builder make_;
  Facts facts_{make_};
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
