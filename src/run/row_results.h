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

template <class F>
double natural_lse(F maximum, F weight) {
  const auto m = static_cast<double>(maximum);
  if (std::isnan(m) || std::isinf(m)) return m;
  return (std::ceil(m) + std::log2(static_cast<double>(weight))) * std::numbers::ln2;
}

// Nothing seen, or nothing but -inf.
template <class F>
bool sees_nothing(F maximum) {
  return maximum == -std::numeric_limits<F>::infinity();
}

// What O is multiplied with.
template <class F>
F factor_of(F maximum, F weight) {
  return sees_nothing(maximum) ? F{1} : F{1} / weight;
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
