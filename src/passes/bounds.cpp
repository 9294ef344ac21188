// In: a graph and a box; out: a bound for every node, from the leaves up. Read bound_of() first:
// one row per operation.
#include "passes/bounds.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <type_traits>

#include "base/element.h"
#include "base/error.h"

namespace treadle::passes {
namespace {

using ir::Input;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Type;

std::uint8_t axis_bit(Input input) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(input));
}

Affine form_of(const Axis& axis, Variable inner, Variable outer) {
  Affine form;
  form.constant = axis.low;
  form.slope[static_cast<std::size_t>(inner)] = axis.step;
  if (outer != inner) form.slope[static_cast<std::size_t>(outer)] = axis.outer_step;
  return form;
}

// An exact value from memory.
Bound of_element(const ConstView& view, std::int64_t offset) {
  Bound bound;
  base::visit_dtype(view.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto value = base::load_as<T>(view.data(), offset);
    if constexpr (base::is_float_element<T>) {
      bound = of_real(RealRange::constant(value));
    } else {
      bound = of_integer(IntegerRange::constant(value));
    }
  });
  return bound;
}

// What an element of an integer type or bool can be.
IntegerRange range_of(DType dtype) {
  IntegerRange range;
  base::visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool>) {
      range = IntegerRange::between(0, 1);
    } else if constexpr (std::is_integral_v<T>) {
      range = IntegerRange::between(std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    }
  });
  return range;
}

// Elements of bool buffers are bounded as the integers 0 and 1.
Bound as_type(Bound bound, Type type) {
  if (type != Type::boolean) return bound;
  bound.may_be_true = bound.integer.high >= 1;
  bound.may_be_false = bound.integer.low <= 0;
  return bound;
}

}  // namespace

Bounds::Bounds(const ir::Graph& graph, CaptureTables& tables, Contents contents)
    : graph_(graph),
      tables_(tables),
      contents_(contents),
      bounds_(graph.size()),
      depends_(graph.size()),
      inside_(graph.size(), true),
      used_(graph.size()) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    std::uint8_t& depends = depends_[id];
    if (node.op == Op::input && node.input != Input::score && node.input != Input::grad) {
      depends = axis_bit(node.input);
    }
    for (const NodeId operand : node.operands) depends |= depends_[operand];
  }
}

Truth Bounds::truth(const Box& box) {
  evaluate(box);
  const Bound& result = output(0);
  if (result.may_be_poison || result.may_be_true == result.may_be_false) return Truth::unsure;
  return result.may_be_true ? Truth::always : Truth::never;
}

void Bounds::evaluate(const Box& box) {
  std::uint8_t changed = 0;
  if (box.b != box_.b) changed |= axis_bit(Input::b);
  if (box.h != box_.h) changed |= axis_bit(Input::h);
  if (box.q != box_.q) changed |= axis_bit(Input::q);
  if (box.kv != box_.kv) changed |= axis_bit(Input::kv);
  box_ = box;
  counts_ = counts_of(box);
  for (NodeId id = 0; id < graph_.size(); ++id) {
    // Splitting a box changes one of its axes; what does not depend on it stays.
    if (evaluated_ && (depends_[id] & changed) == 0) continue;
    const Node& node = graph_[id];
    Bound& bound = bounds_[id];
    bound = bound_of(id, box);
    // These three have rules of their own for poison; everything else is poisoned by any poisoned
    // operand.
    const bool own_rule =
        node.op == Op::where || node.op == Op::logical_and || node.op == Op::logical_or;
    if (own_rule) continue;
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      bound.may_be_poison |= operand(node, i).may_be_poison;
  }
  evaluated_ = true;
}

bool Bounds::reads_inside() const { return std::ranges::all_of(inside_, std::identity()); }

bool Bounds::never_poisoned() const {
  const auto divides_by_zero = [&](const Node& node) {
    return (node.op == Op::floor_div || node.op == Op::mod) && operand(node, 1).integer.contains(0);
  };
  return reads_inside() && std::ranges::none_of(graph_.nodes(), divides_by_zero);
}

bool Bounds::fits_32_bits() const {
  for (NodeId id = 0; id < graph_.size(); ++id) {
    if (graph_[id].type != Type::integer) continue;
    const IntegerRange& range = bounds_[id].integer;
    if (range.low < std::numeric_limits<std::int32_t>::min() ||
        range.high > std::numeric_limits<std::int32_t>::max())
      return false;
  }
  return true;
}

Bound Bounds::bound_of(NodeId id, const Box& box) {
  const Node& node = graph_[id];
  const auto integer = [&](std::size_t i) -> const IntegerRange& {
    return operand(node, i).integer;
  };
  const auto real = [&](std::size_t i) -> const RealRange& {
    return operand(node, std::min(i, node.operands.size() - 1)).real;
  };
  const bool is_real = node.type == Type::real;
  const auto real_function = [&] { return of_real(apply(node.op, real(0), real(1), real(2))); };

  switch (node.op) {
    case Op::input:
      switch (node.input) {
        case Input::score:
        case Input::grad: return of_real(RealRange::anything());
        case Input::b:
          return of_integer(IntegerRange::of(form_of(box.b, Variable::b, Variable::b), counts_));
        case Input::h:
          return of_integer(IntegerRange::of(form_of(box.h, Variable::h, Variable::h), counts_));
        case Input::q:
          return of_integer(
              IntegerRange::of(form_of(box.q, Variable::q, Variable::q_outer), counts_));
        case Input::kv:
          return of_integer(IntegerRange::of(form_of(box.kv, Variable::kv, Variable::kv), counts_));
      }
      break;
    case Op::constant:
      switch (node.type) {
        case Type::real: return of_real(RealRange::constant(node.real()));
        case Type::integer: return of_integer(IntegerRange::constant(node.integer()));
        case Type::boolean: return of_truth(node.boolean(), !node.boolean());
      }
      break;
    case Op::load: return load(id);

    case Op::add:
      return is_real ? real_function() : of_integer(add(integer(0), integer(1), counts_));
    case Op::sub:
      return is_real ? real_function() : of_integer(subtract(integer(0), integer(1), counts_));
    case Op::mul:
      return is_real ? real_function() : of_integer(multiply(integer(0), integer(1), counts_));
    case Op::neg: return is_real ? real_function() : of_integer(negate(integer(0), counts_));
    case Op::abs: return is_real ? real_function() : of_integer(absolute(integer(0), counts_));
    case Op::sign:
      return is_real ? real_function()
                     : of_integer(IntegerRange::between(integer(0).low > 0    ? 1
                                                        : integer(0).low == 0 ? 0
                                                                              : -1,
                                                        integer(0).high < 0    ? -1
                                                        : integer(0).high == 0 ? 0
                                                                               : 1));
    case Op::min: return is_real ? real_function() : of_integer(minimum(integer(0), integer(1)));
    case Op::max: return is_real ? real_function() : of_integer(maximum(integer(0), integer(1)));
    case Op::clamp:
      return is_real ? real_function()
                     : of_integer(minimum(maximum(integer(0), integer(1)), integer(2)));

    case Op::div:
    case Op::pow:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::exp:
    case Op::exp2:
    case Op::expm1:
    case Op::log:
    case Op::log2:
    case Op::log1p:
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::asin:
    case Op::acos:
    case Op::atan:
    case Op::atan2:
    case Op::sinh:
    case Op::cosh:
    case Op::tanh:
    case Op::sigmoid:
    case Op::erf:
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc: return real_function();

    case Op::floor_div:
    case Op::mod: {
      Bound bound = of_integer(node.op == Op::mod ? modulo(integer(0), integer(1), counts_)
                                                  : floor_divide(integer(0), integer(1), counts_));
      bound.may_be_poison = integer(1).contains(0);
      return bound;
    }
    case Op::bit_and: return of_integer(bit_and(integer(0), integer(1), counts_));
    case Op::bit_or:
    case Op::bit_xor: return of_integer(bit_or_xor(integer(0), integer(1)));
    case Op::bit_not: return of_integer(subtract(IntegerRange::constant(-1), integer(0), counts_));
    case Op::shift_left: return of_integer(shift_left(integer(0), integer(1), counts_));
    case Op::shift_right: return of_integer(shift_right(integer(0), integer(1), counts_));

    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
      return graph_[node.operands[0]].type == Type::real
                 ? compare(node.op, real(0), real(1))
                 : compare(node.op, integer(0), integer(1), counts_);

    case Op::logical_and: return conjunction(operand(node, 0), operand(node, 1));
    case Op::logical_or:
      return negation(conjunction(negation(operand(node, 0)), negation(operand(node, 1))));
    case Op::logical_xor: {
      const Bound& a = operand(node, 0);
      const Bound& b = operand(node, 1);
      return of_truth((a.may_be_true && b.may_be_false) || (a.may_be_false && b.may_be_true),
                      (a.may_be_true && b.may_be_true) || (a.may_be_false && b.may_be_false));
    }
    case Op::logical_not: return negation(operand(node, 0));
    case Op::isnan: return of_truth(real(0).may_be_nan, true);
    case Op::isinf:
      return of_truth(real(0).low == -RealRange::infinity || real(0).high == RealRange::infinity,
                      true);

    case Op::where: {
      const Bound& condition = operand(node, 0);
      Bound chosen = !condition.may_be_false ? operand(node, 1)
                     : !condition.may_be_true
                         ? operand(node, 2)
                         : either(operand(node, 1), operand(node, 2), node.type);
      // Where the condition is poisoned nothing is promised, so a bound on it is of no use there.
      chosen.may_be_poison |= condition.may_be_poison;
      return chosen;
    }
    case Op::to_float:
      if (graph_[node.operands[0]].type == Type::integer) return of_real(to_real(integer(0)));
      return of_real(RealRange::between(operand(node, 0).may_be_false ? 0 : 1,
                                        operand(node, 0).may_be_true ? 1 : 0));
    case Op::to_int:
      if (graph_[node.operands[0]].type == Type::real) return of_integer(to_integer(real(0)));
      return of_integer(IntegerRange::between(operand(node, 0).may_be_false ? 0 : 1,
                                              operand(node, 0).may_be_true ? 1 : 0));
    case Op::to_bool:
      if (graph_[node.operands[0]].type == Type::real) {
        const RealRange& a = real(0);
        return of_truth(a.may_be_nan || a.low != 0 || a.high != 0, a.low <= 0 && a.high >= 0);
      }
      return of_truth(!integer(0).is_constant() || integer(0).low != 0, integer(0).contains(0));
  }
  base::internal_error("bounds: node %{}", id);
}

Bound Bounds::load(NodeId id) {
  const Node& node = graph_[id];
  const ConstView& view = tables_.memory(node.slot);
  std::int64_t offset = 0;  // of the elements that the fixed indices select
  int moving = -1;          // the axis whose index is not fixed
  bool several = false;     // more than one is not
  bool nowhere = false;     // a fixed index is outside: every point is poisoned
  bool inside = true;
  for (int axis = 0; axis < view.rank(); ++axis) {
    const IntegerRange& index = operand(node, static_cast<std::size_t>(axis)).integer;
    const bool axis_inside = index.low >= 0 && index.high < view.size(axis);
    inside = inside && axis_inside;
    if (!index.is_constant()) {
      several = several || moving >= 0;
      moving = axis;
    } else if (axis_inside) {
      offset += index.low * view.stride(axis);
    } else {
      nowhere = true;
    }
  }
  inside_[id] = inside;

  Bound unknown;
  if (node.type != Type::real) unknown.integer = range_of(view.dtype());
  unknown.may_be_poison = !inside;
  if (nowhere || several || contents_ == Contents::ignored) return unknown;
  if (moving < 0) return as_type(of_element(view, offset), node.type);

  // Where the index is outside there is poison and no value.
  const IntegerRange& index = operand(node, static_cast<std::size_t>(moving)).integer;
  const std::int64_t first = std::max<std::int64_t>(index.low, 0);
  const std::int64_t last = std::min(index.high, view.size(moving) - 1);
  if (first > last) return unknown;
  Used& used = used_[id];
  if (used.table == nullptr || used.axis != moving || used.offset != offset) {
    used = {&tables_.along(node.slot, moving, offset), moving, offset};
  }
  Bound bound = node.type == Type::real ? of_real(used.table->reals(first, last))
                                        : of_integer(used.table->integers(first, last));
  bound.may_be_poison = !inside;
  return as_type(bound, node.type);
}

}  // namespace treadle::passes
