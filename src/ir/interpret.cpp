// The definition of every operation.
//
// In: a graph, memory for its slots, points. Out: a column of values per output. Read evaluate()
// first: one line per operation.
#include "ir/interpret.h"

#include <algorithm>
#include <utility>

#include "base/element.h"
#include "base/error.h"
#include "ir/meaning.h"

namespace treadle::ir {
namespace {

// out[i] = f(a[i], b[i], ...). Floats enter f as double and are rounded once when they leave it.
template <class Out, class F, class... Columns>
void map(std::vector<Out>& out, std::int64_t count, F f, const Columns&... columns) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    out[i] = static_cast<Out>(f(columns[i]...));
  }
}

template <class T>
void spread(std::vector<T>& out, std::span<const T> values, std::int64_t count, Input input) {
  const auto n = static_cast<std::size_t>(count);
  if (values.size() == 1) {
    std::fill_n(out.begin(), n, values[0]);
  } else if (values.size() >= n) {
    std::copy_n(values.begin(), n, out.begin());
  } else {
    base::internal_error("interpret: {} points, {} values of {}", count, values.size(),
                         name_of(input));
  }
}

}  // namespace

void check_binding(const Slot& slot, const ConstView& view) {
  if (view.dtype() != slot.dtype) {
    base::fail("capture \"{}\" was compiled as {}, the call binds {}", slot.name,
               treadle::name_of(slot.dtype), treadle::name_of(view.dtype()));
  }
  if (view.rank() != slot.rank) {
    base::fail("capture \"{}\" was compiled with rank {}, the call binds shape {}", slot.name,
               slot.rank, to_string(view.shape()));
  }
}

template <class F>
Interpreter<F>::Interpreter(const Graph& graph, std::vector<ConstView> bindings)
    : graph_(graph), bindings_(std::move(bindings)), columns_(graph.size()) {
  check_bindings();
}

template <class F>
void Interpreter<F>::bind(const std::vector<ConstView>& bindings) {
  bindings_ = bindings;
  check_bindings();
}

template <class F>
void Interpreter<F>::check_bindings() const {
  if (bindings_.size() != graph_.slots().size()) {
    base::internal_error("interpret: {} slots, {} bindings", graph_.slots().size(),
                         bindings_.size());
  }
  for (std::size_t i = 0; i < bindings_.size(); ++i) check_binding(graph_.slots()[i], bindings_[i]);
}

template <class F>
void Interpreter<F>::operator()(const Points<F>& points, std::int64_t count) {
  for (NodeId id = 0; id < graph_.size(); ++id) {
    Column& out = columns_[id];
    const auto n = static_cast<std::size_t>(count);
    switch (graph_[id].type) {
      case Type::real: out.real.resize(n); break;
      case Type::integer: out.integer.resize(n); break;
      case Type::boolean: out.boolean.resize(n); break;
    }
    out.poison.clear();
    evaluate(id, points, count);
    evaluate_poison(id, count);
  }
}

template <class F>
void Interpreter<F>::evaluate(NodeId id, const Points<F>& points, std::int64_t count) {
  using meaning::raw;
  using meaning::wrap;
  using Int = std::int64_t;
  const Node& node = graph_[id];
  Column& out = columns_[id];

  // f over operands that are all float, all integer or all bool; `real` also rounds to F.
  const auto real1 = [&](auto f) { map(out.real, count, f, operand(id, 0).real); };
  const auto real2 = [&](auto f) {
    map(out.real, count, f, operand(id, 0).real, operand(id, 1).real);
  };
  const auto int1 = [&](auto f) { map(out.integer, count, f, operand(id, 0).integer); };
  const auto int2 = [&](auto f) {
    map(out.integer, count, f, operand(id, 0).integer, operand(id, 1).integer);
  };
  const auto compare = [&](auto f) {
    if (graph_[node.operands[0]].type == Type::real) {
      map(out.boolean, count, f, operand(id, 0).real, operand(id, 1).real);
    } else {
      map(out.boolean, count, f, operand(id, 0).integer, operand(id, 1).integer);
    }
  };
  const auto logical = [&](auto f) {
    map(out.boolean, count, f, operand(id, 0).boolean, operand(id, 1).boolean);
  };
  const bool is_real = node.type == Type::real;

  switch (node.op) {
    case Op::input:
      switch (node.input) {
        case Input::score: return spread(out.real, points.score, count, node.input);
        case Input::grad: return spread(out.real, points.grad, count, node.input);
        case Input::b: return spread(out.integer, points.b, count, node.input);
        case Input::h: return spread(out.integer, points.h, count, node.input);
        case Input::q: return spread(out.integer, points.q, count, node.input);
        case Input::kv: return spread(out.integer, points.kv, count, node.input);
      }
      return;
    case Op::constant:
      switch (node.type) {
        case Type::real: out.real.assign(out.real.size(), static_cast<F>(node.real())); return;
        case Type::integer: out.integer.assign(out.integer.size(), node.integer()); return;
        case Type::boolean: out.boolean.assign(out.boolean.size(), node.boolean()); return;
      }
      return;
    case Op::load: return evaluate_load(id, count);

    case Op::add:
      return is_real ? real2([](double a, double b) { return a + b; })
                     : int2([](Int a, Int b) { return wrap(raw(a) + raw(b)); });
    case Op::sub:
      return is_real ? real2([](double a, double b) { return a - b; })
                     : int2([](Int a, Int b) { return wrap(raw(a) - raw(b)); });
    case Op::mul:
      return is_real ? real2([](double a, double b) { return a * b; })
                     : int2([](Int a, Int b) { return wrap(raw(a) * raw(b)); });
    case Op::neg:
      return is_real ? real1([](double a) { return -a; })
                     : int1([](Int a) { return wrap(0 - raw(a)); });
    case Op::abs:
      return is_real ? real1([](double a) { return std::fabs(a); })
                     : int1([](Int a) { return a < 0 ? wrap(0 - raw(a)) : a; });
    case Op::sign:
      return is_real ? real1([](double a) { return meaning::sign(a); })
                     : int1([](Int a) { return meaning::sign(a); });
    case Op::min:
      return is_real ? real2(meaning::min) : int2([](Int a, Int b) { return std::min(a, b); });
    case Op::max:
      return is_real ? real2(meaning::max) : int2([](Int a, Int b) { return std::max(a, b); });
    case Op::clamp:
      if (is_real) {
        return map(
            out.real, count,
            [](double a, double lo, double hi) { return meaning::min(meaning::max(a, lo), hi); },
            operand(id, 0).real, operand(id, 1).real, operand(id, 2).real);
      }
      return map(
          out.integer, count, [](Int a, Int lo, Int hi) { return std::min(std::max(a, lo), hi); },
          operand(id, 0).integer, operand(id, 1).integer, operand(id, 2).integer);

    case Op::div: return real2([](double a, double b) { return a / b; });
    case Op::pow: return real2([](double a, double b) { return std::pow(a, b); });
    case Op::sqrt: return real1([](double a) { return std::sqrt(a); });
    case Op::rsqrt: return real1([](double a) { return 1.0 / std::sqrt(a); });
    case Op::exp: return real1([](double a) { return std::exp(a); });
    case Op::exp2: return real1([](double a) { return std::exp2(a); });
    case Op::expm1: return real1([](double a) { return std::expm1(a); });
    case Op::log: return real1([](double a) { return std::log(a); });
    case Op::log2: return real1([](double a) { return std::log2(a); });
    case Op::log1p: return real1([](double a) { return std::log1p(a); });
    case Op::sin: return real1([](double a) { return std::sin(a); });
    case Op::cos: return real1([](double a) { return std::cos(a); });
    case Op::tan: return real1([](double a) { return std::tan(a); });
    case Op::asin: return real1([](double a) { return std::asin(a); });
    case Op::acos: return real1([](double a) { return std::acos(a); });
    case Op::atan: return real1([](double a) { return std::atan(a); });
    case Op::atan2: return real2([](double a, double b) { return std::atan2(a, b); });
    case Op::sinh: return real1([](double a) { return std::sinh(a); });
    case Op::cosh: return real1([](double a) { return std::cosh(a); });
    case Op::tanh: return real1([](double a) { return std::tanh(a); });
    case Op::sigmoid: return real1(meaning::sigmoid);
    case Op::erf: return real1([](double a) { return std::erf(a); });

    case Op::floor: return real1([](double a) { return std::floor(a); });
    case Op::ceil: return real1([](double a) { return std::ceil(a); });
    case Op::round: return real1([](double a) { return std::nearbyint(a); });  // half to even
    case Op::trunc: return real1([](double a) { return std::trunc(a); });

    case Op::floor_div: return int2(meaning::floor_div);
    case Op::mod: return int2(meaning::mod);
    case Op::bit_and: return int2([](Int a, Int b) { return a & b; });
    case Op::bit_or: return int2([](Int a, Int b) { return a | b; });
    case Op::bit_xor: return int2([](Int a, Int b) { return a ^ b; });
    case Op::bit_not: return int1([](Int a) { return ~a; });
    case Op::shift_left: return int2(meaning::shift_left);
    case Op::shift_right: return int2(meaning::shift_right);

    case Op::eq: return compare([](auto a, auto b) { return a == b; });
    case Op::ne: return compare([](auto a, auto b) { return a != b; });
    case Op::lt: return compare([](auto a, auto b) { return a < b; });
    case Op::le: return compare([](auto a, auto b) { return a <= b; });
    case Op::gt: return compare([](auto a, auto b) { return a > b; });
    case Op::ge: return compare([](auto a, auto b) { return a >= b; });

    case Op::logical_and: return logical([](auto a, auto b) { return a & b; });
    case Op::logical_or: return logical([](auto a, auto b) { return a | b; });
    case Op::logical_xor: return logical([](auto a, auto b) { return a ^ b; });
    case Op::logical_not:
      return map(out.boolean, count, [](std::uint8_t a) { return a ^ 1; }, operand(id, 0).boolean);
    case Op::isnan:
      return map(out.boolean, count, [](F a) { return std::isnan(a); }, operand(id, 0).real);
    case Op::isinf:
      return map(out.boolean, count, [](F a) { return std::isinf(a); }, operand(id, 0).real);

    case Op::where: {
      const auto choose = [](std::uint8_t c, auto a, auto b) { return c ? a : b; };
      const auto& c = operand(id, 0).boolean;
      switch (node.type) {
        case Type::real:
          return map(out.real, count, choose, c, operand(id, 1).real, operand(id, 2).real);
        case Type::integer:
          return map(out.integer, count, choose, c, operand(id, 1).integer, operand(id, 2).integer);
        case Type::boolean:
          return map(out.boolean, count, choose, c, operand(id, 1).boolean, operand(id, 2).boolean);
      }
      return;
    }
    case Op::to_float:
      if (graph_[node.operands[0]].type == Type::integer) {
        return map(
            out.real, count, [](Int a) { return static_cast<F>(a); }, operand(id, 0).integer);
      }
      return map(
          out.real, count, [](std::uint8_t a) { return static_cast<F>(a); },
          operand(id, 0).boolean);
    case Op::to_int:
      if (graph_[node.operands[0]].type == Type::real) {
        return map(out.integer, count, meaning::to_int, operand(id, 0).real);
      }
      return map(out.integer, count, [](std::uint8_t a) { return Int{a}; }, operand(id, 0).boolean);
    case Op::to_bool:
      if (graph_[node.operands[0]].type == Type::real) {
        return map(
            out.boolean, count, [](F a) { return a != 0; }, operand(id, 0).real);  // NaN is true
      }
      return map(out.boolean, count, [](Int a) { return a != 0; }, operand(id, 0).integer);
  }
}

template <class F>
void Interpreter<F>::evaluate_load(NodeId id, std::int64_t count) {
  const Node& node = graph_[id];
  const ConstView& view = memory_of(node);
  Column& out = columns_[id];

  // Axis by axis, so that each loop is a simple one: where is the element, and is it inside?
  const auto n = static_cast<std::size_t>(count);
  offsets_.assign(n, 0);
  outside_.assign(n, 0);
  std::uint8_t somewhere_outside = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    const std::int64_t* index = operand(id, axis).integer.data();
    const auto size = static_cast<std::uint64_t>(view.size(axis));
    const std::int64_t stride = view.stride(axis);
    for (std::size_t i = 0; i < n; ++i) {
      const bool inside =
          static_cast<std::uint64_t>(index[i]) < size;  // also refuses negative ones
      outside_[i] |= static_cast<std::uint8_t>(!inside);
      somewhere_outside |= static_cast<std::uint8_t>(!inside);
      offsets_[i] += inside ? index[i] * stride : 0;
    }
  }
  if (somewhere_outside != 0) out.poison = outside_;
  base::visit_dtype(view.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto gather = [&](auto& column) {
      using Value = std::remove_reference_t<decltype(column[0])>;
      for (std::size_t i = 0; i < n; ++i) {
        column[i] = outside_[i] != 0
                        ? Value{0}
                        : static_cast<Value>(base::load_as<T>(view.data(), offsets_[i]));
      }
    };
    if constexpr (base::is_float_element<T>) {
      gather(out.real);
    } else if constexpr (std::same_as<T, bool>) {
      gather(out.boolean);
    } else {
      gather(out.integer);
    }
  });
}

template <class F>
std::span<const F> Interpreter<F>::reals(int output) const {
  return columns_[graph_.output(output)].real;
}

template <class F>
std::span<const std::int64_t> Interpreter<F>::integers(int output) const {
  return columns_[graph_.output(output)].integer;
}

template <class F>
std::span<const std::uint8_t> Interpreter<F>::booleans(int output) const {
  return columns_[graph_.output(output)].boolean;
}

template <class F>
std::span<const std::uint8_t> Interpreter<F>::poison(int output) const {
  return columns_[graph_.output(output)].poison;
}

template class Interpreter<float>;
template class Interpreter<double>;

}  // namespace treadle::ir
