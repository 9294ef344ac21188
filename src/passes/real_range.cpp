// The range of every operation on floats.
//
// In: ranges of operands. Out: the range of the result, wide enough for fp32 and fp64 evaluation.
// Read apply() first, then function(): one row per operation.
#include "passes/real_range.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ir/meaning.h"
#include "ir/ops_of_rule.h"

namespace treadle::passes {
namespace {

using ir::ArithmeticOp;
using ir::Op;
using ir::RealOp;
using ir::RoundingOp;
using ir::Rule;

constexpr double infinity = RealRange::infinity;
constexpr double largest_f32 = std::numeric_limits<float>::max();

bool is_finite(const RealRange& a) { return a.low > -infinity && a.high < infinity; }
bool has_zero(const RealRange& a) { return a.low <= 0 && a.high >= 0; }
bool has_infinity(const RealRange& a) { return !is_finite(a); }

// A function that rises over the whole range.
template <class F>
RealRange rising(const RealRange& a, F f) {
  return widened(RealRange::between(f(a.low), f(a.high), a.may_be_nan));
}

// A rising function that is NaN below `begin`.
template <class F>
RealRange rising_from(const RealRange& a, double begin, F f) {
  if (a.high < begin) return RealRange::anything();
  RealRange range = rising(RealRange::between(std::max(a.low, begin), a.high), f);
  range.may_be_nan = a.may_be_nan || a.low < begin;
  return range;
}

RealRange add(const RealRange& a, const RealRange& b) {
  const bool meets =
      (a.low == -infinity && b.high == infinity) || (a.high == infinity && b.low == -infinity);
  const double low = a.low == -infinity || b.low == -infinity ? -infinity : a.low + b.low;
  const double high = a.high == infinity || b.high == infinity ? infinity : a.high + b.high;
  return widened(RealRange::between(low, high, a.may_be_nan || b.may_be_nan || meets));
}

RealRange negate(const RealRange& a) { return RealRange::between(-a.high, -a.low, a.may_be_nan); }

RealRange multiply(const RealRange& a, const RealRange& b) {
  const bool zero_meets_infinity =
      (has_zero(a) && has_infinity(b)) || (has_zero(b) && has_infinity(a));
  const auto product = [](double x, double y) { return x == 0 || y == 0 ? 0.0 : x * y; };
  const double corner[] = {product(a.low, b.low), product(a.low, b.high), product(a.high, b.low),
                           product(a.high, b.high)};
  const auto [low, high] = std::minmax_element(std::begin(corner), std::end(corner));
  return widened(
      RealRange::between(*low, *high, a.may_be_nan || b.may_be_nan || zero_meets_infinity));
}

RealRange divide(const RealRange& a, const RealRange& b) {
  // A divisor that may be zero, also after fp32 has flushed it there, may give anything.
  const bool clear_of_zero = b.low > 1e-30 || b.high < -1e-30;
  if (!clear_of_zero || !is_finite(a) || !is_finite(b)) return RealRange::anything();
  const double corner[] = {a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high};
  const auto [low, high] = std::minmax_element(std::begin(corner), std::end(corner));
  return widened(RealRange::between(*low, *high, a.may_be_nan || b.may_be_nan));
}

RealRange absolute(const RealRange& a) {
  if (a.low >= 0) return a;
  if (a.high <= 0) return negate(a);
  return RealRange::between(0, std::max(-a.low, a.high), a.may_be_nan);
}

RealRange minimum(const RealRange& a, const RealRange& b) {
  return RealRange::between(std::min(a.low, b.low), std::min(a.high, b.high),
                            a.may_be_nan || b.may_be_nan);
}

RealRange maximum(const RealRange& a, const RealRange& b) {
  return RealRange::between(std::max(a.low, b.low), std::max(a.high, b.high),
                            a.may_be_nan || b.may_be_nan);
}

RealRange sign(const RealRange& a) {
  const bool nan = a.may_be_nan;  // whose sign is 0
  return RealRange::between(a.low > 0 && !nan ? 1 : (a.low >= 0 ? 0 : -1),
                            a.high < 0 && !nan ? -1 : (a.high <= 0 ? 0 : 1));
}

RealRange arithmetic(ArithmeticOp op, const RealRange& a, const RealRange& b, const RealRange& c) {
  switch (op) {
    case ArithmeticOp::add: return add(a, b);
    case ArithmeticOp::sub: return add(a, negate(b));
    case ArithmeticOp::mul: return multiply(a, b);
    case ArithmeticOp::neg: return negate(a);
    case ArithmeticOp::abs: return absolute(a);
    case ArithmeticOp::sign: return sign(a);
    case ArithmeticOp::min: return minimum(a, b);
    case ArithmeticOp::max: return maximum(a, b);
    case ArithmeticOp::clamp: return minimum(maximum(a, b), c);
  }
  return RealRange::anything();
}

RealRange function(RealOp op, const RealRange& a, const RealRange& b) {
  constexpr double pi = std::numbers::pi;
  const bool nan = a.may_be_nan;
  switch (op) {
    case RealOp::div: return divide(a, b);
    case RealOp::pow: return RealRange::anything();
    case RealOp::sqrt: return rising_from(a, 0, [](double x) { return std::sqrt(x); });
    case RealOp::rsqrt:
      if (a.low < 1e-30) return RealRange::anything();
      return widened(RealRange::between(1 / std::sqrt(a.high), 1 / std::sqrt(a.low), nan));
    case RealOp::exp: return rising(a, [](double x) { return std::exp(x); });
    case RealOp::exp2: return rising(a, [](double x) { return std::exp2(x); });
    case RealOp::expm1: return rising(a, [](double x) { return std::expm1(x); });
    case RealOp::log: return rising_from(a, 0, [](double x) { return std::log(x); });
    case RealOp::log2: return rising_from(a, 0, [](double x) { return std::log2(x); });
    case RealOp::log1p: return rising_from(a, -1, [](double x) { return std::log1p(x); });
    case RealOp::sin:
    case RealOp::cos: return widened(RealRange::between(-1, 1, nan || has_infinity(a)));
    case RealOp::tan: return RealRange::anything();
    case RealOp::asin:
    case RealOp::acos:
      return widened(RealRange::between(-pi / 2, pi, nan || a.low < -1 || a.high > 1));
    case RealOp::atan: return rising(a, [](double x) { return std::atan(x); });
    case RealOp::atan2: return widened(RealRange::between(-pi, pi, nan || b.may_be_nan));
    case RealOp::sinh: return rising(a, [](double x) { return std::sinh(x); });
    case RealOp::cosh: return rising(absolute(a), [](double x) { return std::cosh(x); });
    case RealOp::tanh: return rising(a, [](double x) { return std::tanh(x); });
    case RealOp::sigmoid: return rising(a, ir::meaning::sigmoid);
    case RealOp::erf: return rising(a, [](double x) { return std::erf(x); });
  }
  return RealRange::anything();
}

// Exact: no rounding happens.
RealRange rounding(RoundingOp op, const RealRange& a) {
  const auto exact = [&](auto f) { return RealRange::between(f(a.low), f(a.high), a.may_be_nan); };
  switch (op) {
    case RoundingOp::floor: return exact([](double x) { return std::floor(x); });
    case RoundingOp::ceil: return exact([](double x) { return std::ceil(x); });
    case RoundingOp::round: return exact([](double x) { return std::nearbyint(x); });
    case RoundingOp::trunc: return exact([](double x) { return std::trunc(x); });
  }
  return RealRange::anything();
}

}  // namespace

RealRange RealRange::constant(double value) {
  if (std::isnan(value)) return anything();
  const auto rounded = static_cast<double>(static_cast<float>(value));
  return between(std::min(value, rounded), std::max(value, rounded));
}

bool RealRange::contains(double value) const {
  return std::isnan(value) ? may_be_nan : low <= value && value <= high;
}

RealRange widened(const RealRange& exact) {
  // Eight fp32 ulps, and the smallest normal number where results may be flushed or round to it.
  const auto room = [](double x) { return std::fabs(x) * 0x1p-20 + 0x1p-125; };
  RealRange wide = exact;
  if (std::isnan(wide.low) || std::isnan(wide.high)) return RealRange::anything();
  if (wide.low > -infinity)
    wide.low = wide.low == infinity ? largest_f32 : wide.low - room(wide.low);
  if (wide.high < infinity)
    wide.high = wide.high == -infinity ? -largest_f32 : wide.high + room(wide.high);
  if (wide.low < -largest_f32) wide.low = -infinity;
  if (wide.high > largest_f32) wide.high = infinity;
  wide.low = std::min(wide.low, largest_f32);
  wide.high = std::max(wide.high, -largest_f32);
  return wide;
}

RealRange apply(Op op, const RealRange& a, const RealRange& b, const RealRange& c) {
  switch (ir::info(op).rule) {
    case Rule::arithmetic: return arithmetic(static_cast<ArithmeticOp>(op), a, b, c);
    case Rule::real: return function(static_cast<RealOp>(op), a, b);
    case Rule::rounding: return rounding(static_cast<RoundingOp>(op), a);
    case Rule::leaf:
    case Rule::integer:
    case Rule::comparison:
    case Rule::logical:
    case Rule::test:
    case Rule::choice:
    case Rule::conversion: break;
  }
  base::internal_error("real_range: {} is not an operation from floats to a float",
                       ir::info(op).text);
}

RealRange to_real(const IntegerRange& a) {
  const auto low = static_cast<double>(a.low);
  const auto high = static_cast<double>(a.high);
  constexpr double exact_in_f32 = 1 << 24;
  const bool exact = low >= -exact_in_f32 && high <= exact_in_f32;
  const RealRange range = RealRange::between(low, high);
  return exact ? range : widened(range);
}

IntegerRange to_integer(const RealRange& a) {
  using ir::meaning::to_int;
  const std::int64_t low = to_int(a.low);
  const std::int64_t high = to_int(a.high);
  // NaN becomes 0.
  return a.may_be_nan ? IntegerRange::between(std::min<std::int64_t>(low, 0),
                                              std::max<std::int64_t>(high, 0))
                      : IntegerRange::between(low, high);
}

RealRange join(const RealRange& a, const RealRange& b) {
  return RealRange::between(std::min(a.low, b.low), std::max(a.high, b.high),
                            a.may_be_nan || b.may_be_nan);
}

}  // namespace treadle::passes
