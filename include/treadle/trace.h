// Traced values: what a score mod or a mask computes with.
//
//   auto alibi = [&](Score s, Index, Index h, Index q, Index kv) {
//     return s + slopes(h) * (kv - q);
//   };
//   auto window = [](Index, Index, Index q, Index kv) { return q >= kv && q - kv < 128; };
//
// The function is called once, with symbols; operators and the functions below record the
// computation. A captured View, Tensor or Capture is indexed with (); its values may change between
// calls. C++ numbers are constants.
//
// Float, Index and Bool are known when your program is compiled, a Value (an element of a captured
// buffer) when it is traced. `/` yields a float and takes no two integers: floor_div and % do,
// rounding down as in Python. There is no `if` on a traced value; where() chooses.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "treadle/api.h"
#include "treadle/capture.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle {

namespace trace {
class Recorder;  // where traced operations are written down; internal
struct Loose;    // a value in which no traced one takes part; internal
}  // namespace trace

// A traced value of any type.
class TREADLE_API Value {
 public:
  Value(std::shared_ptr<trace::Recorder> recorder, std::int32_t node)
      : recorder_(std::move(recorder)), node_(node) {}

  // What is computed without the score and the indices. It is written down when it meets a traced
  // value.
  explicit Value(std::shared_ptr<const trace::Loose> loose) : loose_(std::move(loose)) {}

  // A traced value has no truth yet: use where(), && and ||.
  explicit operator bool() const = delete;

  [[nodiscard]] const std::shared_ptr<trace::Recorder>& recorder() const { return recorder_; }
  [[nodiscard]] std::int32_t node() const { return node_; }
  [[nodiscard]] const std::shared_ptr<const trace::Loose>& loose() const { return loose_; }

 private:
  std::shared_ptr<trace::Recorder> recorder_;
  std::int32_t node_ = -1;
  std::shared_ptr<const trace::Loose> loose_;
};

// Traced values of known type. Made from a Value they convert it (to a float) or check it.
class TREADLE_API Float : public Value {
 public:
  Float(const Value& value);  // NOLINT: implicit, as from int to double
};
class TREADLE_API Index : public Value {
 public:
  explicit Index(const Value& value);
};
class TREADLE_API Bool : public Value {
 public:
  explicit Bool(const Value& value);
};
using Score = Float;

// What may stand beside a traced value: another one, a C++ number, or a captured scalar.
class TREADLE_API Operand {
 public:
  Operand(const Value& value) : value_(value) {}                          // NOLINT
  Operand(const Capture& scalar);                                         // NOLINT
  Operand(const ConstView& scalar) : Operand(Capture(scalar)) {}          // NOLINT
  Operand(const View& scalar) : Operand(Capture(scalar)) {}               // NOLINT
  Operand(const Tensor& scalar) : Operand(Capture(ConstView(scalar))) {}  // NOLINT
  template <std::floating_point T>
  Operand(T number) : kind_(Kind::real), real_(static_cast<double>(number)) {}  // NOLINT
  template <std::integral T>
  Operand(T number)  // NOLINT
      : kind_(std::same_as<T, bool> ? Kind::boolean : Kind::integer),
        integer_(detail::to_int64(number)) {}

  enum class Kind : std::uint8_t { value, real, integer, boolean };
  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] const Value& value() const { return value_; }
  [[nodiscard]] double real() const { return real_; }
  [[nodiscard]] std::int64_t integer() const { return integer_; }

 private:
  Value value_{nullptr, -1};
  Kind kind_ = Kind::value;
  double real_ = 0;
  std::int64_t integer_ = 0;
};

namespace detail {

// What the compiler knows of an operand's type.
enum class Known : std::uint8_t { boolean, integer, real, later, not_an_operand };

template <class T>
consteval Known known() {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::derived_from<U, Float> || std::floating_point<U>) {
    return Known::real;
  } else if constexpr (std::derived_from<U, Bool> || std::same_as<U, bool>) {
    return Known::boolean;
  } else if constexpr (std::derived_from<U, Index> || std::integral<U>) {
    return Known::integer;
  } else if constexpr (std::derived_from<U, Value> || std::same_as<U, Capture> ||
                       std::same_as<U, View> || std::same_as<U, ConstView> ||
                       std::same_as<U, Tensor>) {
    return Known::later;
  } else {
    return Known::not_an_operand;
  }
}

template <class T>
concept Traced = std::derived_from<std::remove_cvref_t<T>, Value>;

// Operands of which at least one is traced.
template <class... T>
concept Operands = (Traced<T> || ...) && ((known<T>() != Known::not_an_operand) && ...);

template <class... T>
inline constexpr bool any_real = ((known<T>() == Known::real) || ...);
template <class... T>
inline constexpr bool any_later = ((known<T>() == Known::later) || ...);
template <class... T>
inline constexpr bool all_bool = ((known<T>() == Known::boolean) && ...);

// Sums and the like: a float with any float, an integer with integers and bools.
template <class... T>
using Arithmetic =
    std::conditional_t<any_real<T...>, Float, std::conditional_t<any_later<T...>, Value, Index>>;
template <class... T>
using Choice = std::conditional_t<all_bool<T...>, Bool, Arithmetic<T...>>;

template <class... T>
concept Whole = Operands<T...> && !any_real<T...>;
template <class... T>
concept Truths =
    Operands<T...> && ((known<T>() == Known::boolean || known<T>() == Known::later) && ...);
// Not two integers: what would 7 / 2 be?
template <class A, class B>
concept Divisible = Operands<A, B> && (any_real<A, B> || any_later<A, B>);

// Writes down one operation by its name in the table of operations.
TREADLE_API Value apply(std::string_view operation, std::initializer_list<Operand> operands);
// & | ^ ~: logical on bools, bitwise on integers.
TREADLE_API Value apply_bits(std::string_view operation, std::initializer_list<Operand> operands);
TREADLE_API Value load(const Capture& capture, std::initializer_list<Operand> indices);

}  // namespace detail

#define TREADLE_INFIX(symbol, name, Accepts, Result) \
  template <class A, class B>                        \
    requires detail::Accepts<A, B>                   \
  Result operator symbol(const A& a, const B& b) {   \
    return Result(detail::apply(name, {a, b}));      \
  }
#define TREADLE_COMMA ,
TREADLE_INFIX(+, "add", Operands, detail::Arithmetic<A TREADLE_COMMA B>)
TREADLE_INFIX(-, "sub", Operands, detail::Arithmetic<A TREADLE_COMMA B>)
TREADLE_INFIX(*, "mul", Operands, detail::Arithmetic<A TREADLE_COMMA B>)
TREADLE_INFIX(/, "div", Divisible, Float)
TREADLE_INFIX(%, "mod", Whole, Index)
TREADLE_INFIX(<<, "shift_left", Whole, Index)
TREADLE_INFIX(>>, "shift_right", Whole, Index)
TREADLE_INFIX(==, "eq", Operands, Bool)
TREADLE_INFIX(!=, "ne", Operands, Bool)
TREADLE_INFIX(<, "lt", Operands, Bool)
TREADLE_INFIX(<=, "le", Operands, Bool)
TREADLE_INFIX(>, "gt", Operands, Bool)
TREADLE_INFIX(>=, "ge", Operands, Bool)
TREADLE_INFIX(&&, "logical_and", Truths, Bool)
TREADLE_INFIX(||, "logical_or", Truths, Bool)
#undef TREADLE_INFIX

// On bools these are the logical operations.
#define TREADLE_BITS(symbol, name)                                 \
  template <class A, class B>                                      \
    requires detail::Whole<A, B>                                   \
  detail::Choice<A, B> operator symbol(const A & a, const B & b) { \
    return detail::Choice<A, B>(detail::apply_bits(name, {a, b})); \
  }
TREADLE_BITS(&, "bit_and")
TREADLE_BITS(|, "bit_or")
TREADLE_BITS(^, "bit_xor")
#undef TREADLE_BITS

template <detail::Traced A>
detail::Arithmetic<A> operator-(const A& a) {
  return detail::Arithmetic<A>(detail::apply("neg", {a}));
}
template <detail::Traced A>
A operator+(const A& a) {
  return a;
}
template <detail::Truths A>
Bool operator!(const A& a) {
  return Bool(detail::apply("logical_not", {a}));
}
template <detail::Whole A>
detail::Choice<A> operator~(const A& a) {
  return detail::Choice<A>(detail::apply_bits("bit_not", {a}));
}

#define TREADLE_FUNCTION_1(name, Result)      \
  template <detail::Traced A>                 \
  Result name(const A& a) {                   \
    return Result(detail::apply(#name, {a})); \
  }
#define TREADLE_FUNCTION_2(name, Accepts, Result) \
  template <class A, class B>                     \
    requires detail::Accepts<A, B>                \
  Result name(const A& a, const B& b) {           \
    return Result(detail::apply(#name, {a, b}));  \
  }
TREADLE_FUNCTION_1(abs, detail::Arithmetic<A>)
TREADLE_FUNCTION_1(sign, detail::Arithmetic<A>)
TREADLE_FUNCTION_2(min, Operands, detail::Arithmetic<A TREADLE_COMMA B>)
TREADLE_FUNCTION_2(max, Operands, detail::Arithmetic<A TREADLE_COMMA B>)
TREADLE_FUNCTION_2(floor_div, Whole, Index)
TREADLE_FUNCTION_2(pow, Operands, Float)
TREADLE_FUNCTION_2(atan2, Operands, Float)
TREADLE_FUNCTION_1(sqrt, Float)
TREADLE_FUNCTION_1(rsqrt, Float)
TREADLE_FUNCTION_1(exp, Float)
TREADLE_FUNCTION_1(exp2, Float)
TREADLE_FUNCTION_1(expm1, Float)
TREADLE_FUNCTION_1(log, Float)
TREADLE_FUNCTION_1(log2, Float)
TREADLE_FUNCTION_1(log1p, Float)
TREADLE_FUNCTION_1(sin, Float)
TREADLE_FUNCTION_1(cos, Float)
TREADLE_FUNCTION_1(tan, Float)
TREADLE_FUNCTION_1(asin, Float)
TREADLE_FUNCTION_1(acos, Float)
TREADLE_FUNCTION_1(atan, Float)
TREADLE_FUNCTION_1(sinh, Float)
TREADLE_FUNCTION_1(cosh, Float)
TREADLE_FUNCTION_1(tanh, Float)
TREADLE_FUNCTION_1(sigmoid, Float)
TREADLE_FUNCTION_1(erf, Float)
TREADLE_FUNCTION_1(floor, detail::Arithmetic<A>)
TREADLE_FUNCTION_1(ceil, detail::Arithmetic<A>)
TREADLE_FUNCTION_1(round, detail::Arithmetic<A>)
TREADLE_FUNCTION_1(trunc, detail::Arithmetic<A>)
TREADLE_FUNCTION_1(isnan, Bool)
TREADLE_FUNCTION_1(isinf, Bool)
#undef TREADLE_FUNCTION_1
#undef TREADLE_FUNCTION_2
#undef TREADLE_COMMA

template <class A, class B, class C>
  requires detail::Operands<A, B, C>
detail::Arithmetic<A, B, C> clamp(const A& a, const B& low, const C& high) {
  return detail::Arithmetic<A, B, C>(detail::apply("clamp", {a, low, high}));
}

// a where the condition holds, b elsewhere.
template <class Condition, class A, class B>
  requires(detail::Truths<Condition> && detail::Operands<Condition, A, B>)
detail::Choice<A, B> where(const Condition& condition, const A& a, const B& b) {
  return detail::Choice<A, B>(detail::apply("where", {condition, a, b}));
}

// Conversions: to_int truncates towards zero, to_bool is "not zero".
template <detail::Traced A>
Float to_float(const A& a) {
  return Float(detail::apply("float", {a}));
}
template <detail::Traced A>
Index to_int(const A& a) {
  return Index(detail::apply("int", {a}));
}
template <detail::Traced A>
Bool to_bool(const A& a) {
  return Bool(detail::apply("bool", {a}));
}

template <class... Indices>
Value Capture::operator()(const Indices&... index) const {
  return detail::load(*this, {Operand(index)...});
}

template <class Void>
template <class... Indices>
Value BasicView<Void>::operator()(const Indices&... index) const {
  return detail::load(Capture(ConstView(*this)), {Operand(index)...});
}

}  // namespace treadle
