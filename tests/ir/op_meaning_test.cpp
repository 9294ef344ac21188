// What every operation computes, against libm and plain C++: one line per operation and type. The
// tests loop over ops.def and miss a line for every row that is not here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "special_values.h"
#include "treadle/tensor.h"

namespace treadle::ir {
namespace {

using Int = std::int64_t;
using Wide = __int128;  // holds every result before it wraps
constexpr Int lowest = std::numeric_limits<Int>::min();
constexpr Int highest = std::numeric_limits<Int>::max();
using test::inf;
using test::nan;

Int wrapped(Wide value) { return static_cast<Int>(static_cast<std::uint64_t>(value)); }

Wide floored(Wide a, Wide b) {
  const Wide quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int shifted_left(Int a, Int by) {
  for (Int i = 0; i < by && a != 0; ++i) a = wrapped(Wide{a} * 2);
  return by < 0 ? 0 : a;
}

Int shifted_right(Int a, Int by) {
  if (by < 0) return a < 0 ? -1 : 0;
  for (Int i = 0; i < by && a != 0 && a != -1; ++i) a = wrapped(floored(a, 2));
  return a;
}

double smaller(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? nan : std::fmin(a, b);
}
double larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? nan : std::fmax(a, b); }

template <class Out, class In>
using Meanings = std::map<Op, Out (*)(In, In, In)>;

const Meanings<double, double> float_to_float{
    {Op::add, [](double a, double b, double) { return a + b; }},
    {Op::sub, [](double a, double b, double) { return a - b; }},
    {Op::mul, [](double a, double b, double) { return a * b; }},
    {Op::neg, [](double a, double, double) { return -a; }},
    {Op::abs, [](double a, double, double) { return std::copysign(a, 1.0); }},
    {Op::sign, [](double a, double, double) { return a > 0   ? 1.0
                                                     : a < 0 ? -1.0
                                                             : 0.0; }},
    {Op::min, [](double a, double b, double) { return smaller(a, b); }},
    {Op::max, [](double a, double b, double) { return larger(a, b); }},
    {Op::clamp, [](double a, double lo, double hi) { return smaller(larger(a, lo), hi); }},
    {Op::div, [](double a, double b, double) { return a / b; }},
    {Op::pow, [](double a, double b, double) { return std::pow(a, b); }},
    {Op::sqrt, [](double a, double, double) { return std::sqrt(a); }},
    {Op::rsqrt, [](double a, double, double) { return 1 / std::sqrt(a); }},
    {Op::exp, [](double a, double, double) { return std::exp(a); }},
    {Op::exp2, [](double a, double, double) { return std::exp2(a); }},
    {Op::expm1, [](double a, double, double) { return std::expm1(a); }},
    {Op::log, [](double a, double, double) { return std::log(a); }},
    {Op::log2, [](double a, double, double) { return std::log2(a); }},
    {Op::log1p, [](double a, double, double) { return std::log1p(a); }},
    {Op::sin, [](double a, double, double) { return std::sin(a); }},
    {Op::cos, [](double a, double, double) { return std::cos(a); }},
    {Op::tan, [](double a, double, double) { return std::tan(a); }},
    {Op::asin, [](double a, double, double) { return std::asin(a); }},
    {Op::acos, [](double a, double, double) { return std::acos(a); }},
    {Op::atan, [](double a, double, double) { return std::atan(a); }},
    {Op::atan2, [](double a, double b, double) { return std::atan2(a, b); }},
    {Op::sinh, [](double a, double, double) { return std::sinh(a); }},
    {Op::cosh, [](double a, double, double) { return std::cosh(a); }},
    {Op::tanh, [](double a, double, double) { return std::tanh(a); }},
    {Op::sigmoid, [](double a, double, double) { return 1 / (1 + std::exp(-a)); }},
    {Op::erf, [](double a, double, double) { return std::erf(a); }},
    {Op::floor, [](double a, double, double) { return std::floor(a); }},
    {Op::ceil, [](double a, double, double) { return std::ceil(a); }},
    {Op::round, [](double a, double, double) { return std::rint(a); }},
    {Op::trunc, [](double a, double, double) { return std::trunc(a); }},
};

const Meanings<Int, Int> int_to_int{
    {Op::add, [](Int a, Int b, Int) { return wrapped(Wide{a} + b); }},
    {Op::sub, [](Int a, Int b, Int) { return wrapped(Wide{a} - b); }},
    {Op::mul, [](Int a, Int b, Int) { return wrapped(Wide{a} * b); }},
    {Op::neg, [](Int a, Int, Int) { return wrapped(-Wide{a}); }},
    {Op::abs, [](Int a, Int, Int) { return wrapped(a < 0 ? -Wide{a} : Wide{a}); }},
    {Op::sign, [](Int a, Int, Int) { return a > 0   ? Int{1}
                                            : a < 0 ? Int{-1}
                                                    : Int{0}; }},
    {Op::min, [](Int a, Int b, Int) { return a < b ? a : b; }},
    {Op::max, [](Int a, Int b, Int) { return a > b ? a : b; }},
    {Op::clamp,
     [](Int a, Int lo, Int hi) { return a < lo   ? (lo < hi ? lo : hi)
                                        : a < hi ? a
                                                 : hi; }},
    {Op::floor_div, [](Int a, Int b, Int) { return b == 0 ? 0 : wrapped(floored(a, b)); }},
    {Op::mod, [](Int a, Int b, Int) { return b == 0 ? 0 : wrapped(a - floored(a, b) * b); }},
    {Op::bit_and, [](Int a, Int b, Int) { return a & b; }},
    {Op::bit_or, [](Int a, Int b, Int) { return a | b; }},
    {Op::bit_xor, [](Int a, Int b, Int) { return a ^ b; }},
    {Op::bit_not, [](Int a, Int, Int) { return -1 - a; }},
    {Op::shift_left, [](Int a, Int b, Int) { return shifted_left(a, b); }},
    {Op::shift_right, [](Int a, Int b, Int) { return shifted_right(a, b); }},
};

const Meanings<bool, double> float_to_bool{
    {Op::eq, [](double a, double b, double) { return a == b; }},
    {Op::ne, [](double a, double b, double) { return !(a == b); }},
    {Op::lt, [](double a, double b, double) { return a < b; }},
    {Op::le, [](double a, double b, double) { return a < b || a == b; }},
    {Op::gt, [](double a, double b, double) { return b < a; }},
    {Op::ge, [](double a, double b, double) { return b < a || a == b; }},
    {Op::isnan, [](double a, double, double) { return !(a == a); }},
    {Op::isinf, [](double a, double, double) { return a == inf || a == -inf; }},
    {Op::to_bool, [](double a, double, double) { return !(a == 0); }},
};

const Meanings<bool, Int> int_to_bool{
    {Op::eq, [](Int a, Int b, Int) { return a == b; }},
    {Op::ne, [](Int a, Int b, Int) { return !(a == b); }},
    {Op::lt, [](Int a, Int b, Int) { return a < b; }},
    {Op::le, [](Int a, Int b, Int) { return a < b || a == b; }},
    {Op::gt, [](Int a, Int b, Int) { return b < a; }},
    {Op::ge, [](Int a, Int b, Int) { return b < a || a == b; }},
    {Op::to_bool, [](Int a, Int, Int) { return a != 0; }},
};

const Meanings<bool, bool> bool_to_bool{
    {Op::logical_and, [](bool a, bool b, bool) { return a && b; }},
    {Op::logical_or, [](bool a, bool b, bool) { return a || b; }},
    {Op::logical_xor, [](bool a, bool b, bool) { return a != b; }},
    {Op::logical_not, [](bool a, bool, bool) { return !a; }},
    {Op::where, [](bool a, bool b, bool c) { return a ? b : c; }},
};

const Meanings<Int, double> float_to_int{{Op::to_int, [](double a, double, double) {
                                            if (std::isnan(a)) return Int{0};
                                            if (a >= 0x1p63) return highest;
                                            return a <= -0x1p63 ? lowest : static_cast<Int>(a);
                                          }}};
const Meanings<Int, bool> bool_to_int{
    {Op::to_int, [](bool a, bool, bool) { return a ? Int{1} : Int{0}; }}};
const Meanings<double, bool> bool_to_float{
    {Op::to_float, [](bool a, bool, bool) { return a ? 1.0 : 0.0; }}};

template <class T>
std::vector<T> samples();
template <>
std::vector<double> samples() {
  return {0.0,   -0.0,   1.0,    -1.0, 0.5,    -0.5,  1.5,   2.5,  -2.5,   0.1,
          -0.3,  3.0,    -7.25,  40.0, -40,    700.0, -800., 1e-8, -1e-8,  1e10,
          -1e19, 5e-324, 1e-300, 1e30, -1e300, inf,   -inf,  nan,  0x1p63, -0x1p63};
}
template <>
std::vector<Int> samples() {
  return {
      0,  1,  -1,  2,   -2,      3,           -3,     7,          -7,           62,
      63, 64, -63, 100, highest, highest - 1, lowest, lowest + 1, Int{1} << 32, -(Int{1} << 40)};
}
template <>
std::vector<bool> samples() {
  return {false, true};
}

// The element type in memory of what the interpreter with float F calls double, Int or bool.
template <class F, class T>
using Stored = std::conditional_t<std::is_same_v<T, double>, F, T>;

template <class T>
constexpr Type type_for = std::is_same_v<T, double> ? Type::real
                          : std::is_same_v<T, Int>  ? Type::integer
                                                    : Type::boolean;

// Every combination of samples as operands, read from captures x, y and z at index q.
template <class F, class In>
struct Operands {
  explicit Operands(int arity) {
    std::size_t count = 1;
    for (int i = 0; i < arity; ++i) count *= samples<In>().size();
    for (int i = 0; i < 3; ++i)
      memory.emplace_back(dtype_of<Stored<F, In>>, Dims{static_cast<Int>(count)});
    std::size_t repeat = 1;
    for (int i = 0; i < arity; ++i) {
      const auto values = samples<In>();
      auto elements = memory[static_cast<std::size_t>(i)].template data<Stored<F, In>>();
      for (std::size_t at = 0; at < count; ++at) {
        elements[at] = static_cast<Stored<F, In>>(values[at / repeat % values.size()]);
      }
      repeat *= values.size();
    }
    q.resize(count);
    std::iota(q.begin(), q.end(), 0);
  }

  In operator()(int operand, std::size_t at) const {
    return static_cast<In>(
        memory[static_cast<std::size_t>(operand)].template data<Stored<F, In>>()[at]);
  }

  std::vector<Tensor> memory;
  std::vector<Int> q;
};

// Equal, also in the sign of a zero; min, max and clamp may give either zero.
bool same(Op op, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  const bool any_zero = op == Op::min || op == Op::max || op == Op::clamp;
  return a == b && (any_zero || std::signbit(a) == std::signbit(b));
}

template <class F, class Out, class In>
void expect_meaning(const OpInfo& row, const Meanings<Out, In>& meanings) {
  const auto meaning = meanings.find(row.op);
  ASSERT_NE(meaning, meanings.end())
      << row.text << " on " << name_of(type_for<In>) << " has no test";

  const Operands<F, In> operands(row.arity);
  Builder make;
  std::vector<NodeId> ids;
  for (int i = 0; i < row.arity; ++i) {
    const std::string name(1, static_cast<char>('x' + i));
    ids.push_back(make.load({name, dtype_of<Stored<F, In>>, 1}, {make.input(Input::q)}));
  }
  const Graph graph = make.finish({make.apply(row.op, ids)});
  ASSERT_EQ(graph.output_type(), type_for<Out>) << row.text;

  std::vector<ConstView> views;
  for (std::size_t i = 0; i < graph.slots().size(); ++i) views.emplace_back(operands.memory[i]);
  Interpreter<F> run(graph, views);
  run({.q = operands.q}, std::ssize(operands.q));
  for (std::size_t at = 0; at < operands.q.size(); ++at) {
    const In a = operands(0, at);
    const In b = operands(1, at);
    const In c = operands(2, at);
    const Out expected = meaning->second(a, b, c);
    const auto where = [&] {
      return testing::Message() << row.text << " of " << a << ", " << b << ", " << c;
    };
    if constexpr (std::is_same_v<Out, double>) {
      const F once_rounded = static_cast<F>(expected);
      ASSERT_TRUE(same(row.op, run.reals(0)[at], once_rounded))
          << where() << " is " << run.reals(0)[at] << ", not " << once_rounded;
    } else if constexpr (std::is_same_v<Out, Int>) {
      ASSERT_EQ(run.integers(0)[at], expected) << where();
    } else {
      ASSERT_EQ(run.booleans(0)[at], expected) << where();
    }
  }
}

template <class F>
void expect_meaning_of(const OpInfo& row) {
  switch (row.rule) {
    case Rule::leaf: return;  // interpret_test
    case Rule::arithmetic:
      expect_meaning<F>(row, float_to_float);
      expect_meaning<F>(row, int_to_int);
      return;
    case Rule::real:
    case Rule::rounding: return expect_meaning<F>(row, float_to_float);
    case Rule::integer: return expect_meaning<F>(row, int_to_int);
    case Rule::comparison:
      expect_meaning<F>(row, float_to_bool);
      expect_meaning<F>(row, int_to_bool);
      return;
    case Rule::logical: return expect_meaning<F>(row, bool_to_bool);
    case Rule::test: return expect_meaning<F>(row, float_to_bool);
    case Rule::choice: return expect_meaning<F>(row, bool_to_bool);  // other types: interpret_test
    case Rule::conversion:
      if (row.op == Op::to_float) return expect_meaning<F>(row, bool_to_float);  // integers: below
      if (row.op == Op::to_int) {
        expect_meaning<F>(row, float_to_int);
        expect_meaning<F>(row, bool_to_int);
        return;
      }
      expect_meaning<F>(row, float_to_bool);
      expect_meaning<F>(row, int_to_bool);
      return;
  }
}

TEST(OpMeaning, InDoublePrecisionAsLibm) {
  for (const OpInfo& row : op_table()) expect_meaning_of<double>(row);
}

TEST(OpMeaning, InSinglePrecisionTheDoubleResultRoundedOnce) {
  for (const OpInfo& row : op_table()) expect_meaning_of<float>(row);
}

// Through double this would round twice: 2^54 + 2^30 + 1 lies above a tie of floats.
template <class F>
void expect_one_rounding() {
  Builder make;
  const Graph graph = make.finish({make(Op::to_float, make.input(Input::q))});
  Interpreter<F> run(graph, {});
  for (const Int q :
       {(Int{1} << 54) + (Int{1} << 30) + 1, highest, lowest, Int{16777217}, Int{-3}}) {
    run({.q = {&q, 1}}, 1);
    EXPECT_EQ(run.reals(0)[0], static_cast<F>(q)) << q;
  }
}

TEST(OpMeaning, IntegersBecomeFloatsWithOneRounding) {
  expect_one_rounding<float>();
  expect_one_rounding<double>();
}

}  // namespace
}  // namespace treadle::ir
