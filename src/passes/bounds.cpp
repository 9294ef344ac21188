// Evaluates the bounds of a graph over a box.
//
// In: a graph, tables of its captures, a box. Out: a bound for every node, from the leaves up;
// nodes whose axes did not change since the last box keep theirs. Read evaluate() first. Operations
// are in passes/operation_bound.cpp.
#include "passes/bounds.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <type_traits>

#include "base/element.h"
#include "base/error.h"
#include "ir/ops_of_rule.h"
#include "passes/operation_bound.h"

namespace treadle::passes {
namespace {

using ir::Input;
using ir::LeafOp;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Rule;
using ir::Type;

std::uint8_t axis_bit(Input input) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(input));
}

Affine form_of(const Axis& axis, Variable inner, Variable outer) {
  Affine form;
  form.constant = axis.low;
  form.coefficient[static_cast<std::size_t>(inner)] = axis.step;
  if (outer != inner) form.coefficient[static_cast<std::size_t>(outer)] = axis.outer_step;
  return form;
}

Bound constant(const Node& node) {
  switch (node.type) {
    case Type::real: return of_real(RealRange::constant(node.real()));
    case Type::integer: return of_integer(IntegerRange::constant(node.integer()));
    case Type::boolean: break;
  }
  return of_truth(node.boolean(), !node.boolean());
}

// Everything else is poisoned by any poisoned operand.
bool has_own_poison_rule(Op op) {
  return op == Op::where || op == Op::logical_and || op == Op::logical_or;
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

void Bounds::forget() {
  evaluated_ = false;
  for (NodeId id = 0; id < graph_.size(); ++id) {
    inside_[id] = true;
    used_[id] = {};
  }
}

Truth Bounds::truth(const Box& box) {
  evaluate(box);
  const Bound& result = output(0);
  for (std::size_t i = 0; i < graph_.outputs().size(); ++i)
    if (output(static_cast<int>(i)).may_be_poison) return Truth::unsure;
  if (result.may_be_true == result.may_be_false) return Truth::unsure;
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
    const bool is_leaf = ir::info(node.op).rule == Rule::leaf;
    Bound& bound = bounds_[id];
    bound = is_leaf ? leaf(id, box) : bound_of_operation(graph_, node, bounds_, counts_);
    if (has_own_poison_rule(node.op)) continue;
    for (const NodeId operand : node.operands)
      bound.may_be_poison |= bounds_[operand].may_be_poison;
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

Bound Bounds::leaf(NodeId id, const Box& box) {
  const Node& node = graph_[id];
  switch (static_cast<LeafOp>(node.op)) {
    case LeafOp::input: return input(node.input, box);
    case LeafOp::constant: return constant(node);
    case LeafOp::load: return load(id);
  }
  base::internal_error("bounds: node %{}", id);
}

Bound Bounds::input(Input input, const Box& box) const {
  const auto along = [&](const Axis& axis, Variable inner, Variable outer) {
    return of_integer(IntegerRange::of(form_of(axis, inner, outer), counts_));
  };
  switch (input) {
    case Input::score:
    case Input::grad: break;
    case Input::b: return along(box.b, Variable::b, Variable::b);
    case Input::h: return along(box.h, Variable::h, Variable::h);
    case Input::q: return along(box.q, Variable::q, Variable::q_outer);
    case Input::kv: return along(box.kv, Variable::kv, Variable::kv_outer);
  }
  return of_real(RealRange::anything());
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
  if (used.table == nullptr || used.axis != moving || used.offset != offset ||
      used.table->length() <= last) {
    used = {&tables_.along({node.slot, moving, offset}, last), moving, offset};
  }
  Bound bound = node.type == Type::real ? of_real(used.table->reals(first, last))
                                        : of_integer(used.table->integers(first, last));
  bound.may_be_poison = !inside;
  return as_type(bound, node.type);
}

}  // namespace treadle::passes
