// Results of a row from its m, l and O.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>

#include "run/nonfinite.h"
#include "treadle/view.h"

namespace treadle::run {

// m is in powers of two, the row's maximum is not.
template <class F>
double natural_maximum(F maximum) {
  return static_cast<double>(maximum) * std::numbers::ln2;
}

// Nothing seen, or nothing but -inf.
template <class F>
bool sees_nothing(F maximum) {
  return maximum == -std::numeric_limits<F>::infinity();
}

// What a row divides by, as a number times 2^power: l, and the weight of a sink (null: none).
template <class F>
struct Denominator {
  double power, number;

  Denominator(F maximum, F weight, const double* sink)
      : power(std::ceil(static_cast<double>(maximum))), number(static_cast<double>(weight)) {
    if (sink == nullptr) return;
    const double of_sink = *sink * std::numbers::log2e;
    const double below = power;
    if (of_sink > power) power = of_sink;
    // Of equal infinities the difference would be NaN.
    const auto relative = [&](double other) {
      return other == power ? 1.0 : std::exp2(other - power);
    };
    number = number * relative(below) + (std::isnan(of_sink) ? of_sink : relative(of_sink));
  }
};

// What O is multiplied with. `kept`: what dropout multiplies weights with that it keeps, or 1.
template <class F>
F factor_of(F maximum, F weight, const double* sink, double kept) {
  if (sees_nothing(maximum)) return F{1};
  if (sink == nullptr) return F{1} / weight * static_cast<F>(kept);
  const Denominator<F> by(maximum, weight, sink);
  return static_cast<F>(kept * std::exp2(std::ceil(static_cast<double>(maximum)) - by.power) /
                        by.number);
}

template <class F>
double natural_lse(F maximum, F weight, const double* sink) {
  if (sees_nothing(maximum) && sink != nullptr) return *sink;
  const auto m = static_cast<double>(maximum);
  if (std::isnan(m) || std::isinf(m)) return m;
  const Denominator<F> by(maximum, weight, sink);
  return (by.power + std::log2(by.number)) * std::numbers::ln2;
}

// `row` is O times the factor. A row that sees nothing becomes zeros, whatever the values are. False
// if there is a NaN whose origin has to be looked into.
template <class F>
bool settle(F maximum, F weight, F* row, std::int64_t length) {
  if (!sees_nothing(maximum)) return weight == weight && !has_nan(row, length);
  const bool clean =
      weight == F{0} && std::all_of(row, row + length, [](F x) { return x == F{0}; });
  std::fill_n(row, length, F{0});
  return clean;
}

// value_of(i) of queries i = 0 .. count of a head, at rows `rows` of it, or (null) the first ones.
template <class F, class ValueOf>
void put_rows(const std::optional<View>& view, std::int64_t b, std::int64_t h,
              const std::int32_t* rows, std::int64_t count, ValueOf value_of) {
  if (!view) return;
  F* base = static_cast<F*>(view->data()) + b * view->stride(0) + h * view->stride(1);
  for (std::int64_t i = 0; i < count; ++i)
    base[(rows == nullptr ? i : rows[i]) * view->stride(2)] = static_cast<F>(value_of(i));
}

}  // namespace treadle::run
