// Patterns of nodes, written as formulas:
//
//   (i + m) + n            an integer plus two integer constants
//   where(!p, a, b)        a choice by a negated bool
//   x - 0.0                a float minus the constant 0.0, which is not -0.0
//
// A letter stands for any node of its type, and for the same node wherever it stands in one rule. A
// number stands for the constant of its type that has exactly these bits. passes/rewrite.h matches
// and builds patterns.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>

#include "ir/op.h"

namespace treadle::passes::match {

struct Letter {
  int number;                    // its own among the letters
  std::optional<ir::Type> type;  // none: of any type
  bool constant = false;         // only a constant
};

// Integers and integer constants; floats and a float constant; bools; anything, and any constant.
inline constexpr Letter i{0, ir::Type::integer}, j{1, ir::Type::integer};
inline constexpr Letter m{2, ir::Type::integer, true}, n{3, ir::Type::integer, true};
inline constexpr Letter x{4, ir::Type::real}, y{5, ir::Type::real};
inline constexpr Letter c{6, ir::Type::real, true};
inline constexpr Letter p{7, ir::Type::boolean}, r{8, ir::Type::boolean};
inline constexpr Letter a{9, {}}, b{10, {}}, d{11, {}};
inline constexpr Letter k{12, {}, true};
inline constexpr std::size_t letters = 13;

struct Number {
  ir::Type type;
  std::uint64_t bits;  // as in ir::Node
};

template <class... Parts>
struct Call {
  ir::Op op;
  std::tuple<Parts...> parts;
};

// For the right side of a rule: the value of an operation on constants.
template <class Operation>
struct Folded {
  Operation operation;
};

template <class T>
inline constexpr bool is_pattern = std::is_same_v<T, Letter>;
template <class... Parts>
inline constexpr bool is_pattern<Call<Parts...>> = true;
template <class Operation>
inline constexpr bool is_pattern<Folded<Operation>> = true;

template <class T>
concept Part = is_pattern<T> || std::is_arithmetic_v<T>;
template <class... T>
concept Operands = (Part<T> && ...) && (is_pattern<T> || ...);

template <class T>
constexpr T part(const T& pattern) {
  return pattern;
}
constexpr Number part(bool value) { return {ir::Type::boolean, value ? 1u : 0u}; }
constexpr Number part(int value) {
  return {ir::Type::integer, static_cast<std::uint64_t>(std::int64_t{value})};
}
constexpr Number part(double value) {
  return {ir::Type::real, std::bit_cast<std::uint64_t>(value)};
}

// op(parts...), for rules that hold for several operations.
template <Part... P>
constexpr auto call(ir::Op op, P... parts) {
  return Call<decltype(part(parts))...>{op, {part(parts)...}};
}

template <class Operation>
constexpr Folded<Operation> fold(Operation operation) {
  return {operation};
}

#define TREADLE_PREFIX(symbol, op)      \
  template <class A>                    \
    requires Operands<A>                \
  constexpr auto operator symbol(A e) { \
    return call(ir::Op::op, e);         \
  }
TREADLE_PREFIX(-, neg)
TREADLE_PREFIX(~, bit_not)
TREADLE_PREFIX(!, logical_not)
#undef TREADLE_PREFIX

#define TREADLE_INFIX(symbol, op)            \
  template <class A, class B>                \
    requires Operands<A, B>                  \
  constexpr auto operator symbol(A e, B f) { \
    return call(ir::Op::op, e, f);           \
  }
TREADLE_INFIX(+, add)
TREADLE_INFIX(-, sub)
TREADLE_INFIX(*, mul)
TREADLE_INFIX(/, div)
TREADLE_INFIX(%, mod)
TREADLE_INFIX(&, bit_and)
TREADLE_INFIX(|, bit_or)
TREADLE_INFIX(^, bit_xor)
TREADLE_INFIX(<<, shift_left)
TREADLE_INFIX(>>, shift_right)
TREADLE_INFIX(==, eq)
TREADLE_INFIX(!=, ne)
TREADLE_INFIX(<, lt)
TREADLE_INFIX(<=, le)
TREADLE_INFIX(>, gt)
TREADLE_INFIX(>=, ge)
TREADLE_INFIX(&&, logical_and)
TREADLE_INFIX(||, logical_or)
#undef TREADLE_INFIX

#define TREADLE_FUNCTION(name)           \
  template <class... P>                  \
    requires Operands<P...>              \
  constexpr auto name(P... parts) {      \
    return call(ir::Op::name, parts...); \
  }
TREADLE_FUNCTION(abs)
TREADLE_FUNCTION(min)
TREADLE_FUNCTION(max)
TREADLE_FUNCTION(pow)
TREADLE_FUNCTION(floor_div)
TREADLE_FUNCTION(logical_xor)
TREADLE_FUNCTION(isnan)
TREADLE_FUNCTION(isinf)
TREADLE_FUNCTION(where)
TREADLE_FUNCTION(to_float)
TREADLE_FUNCTION(to_int)
TREADLE_FUNCTION(to_bool)
#undef TREADLE_FUNCTION

}  // namespace treadle::passes::match
