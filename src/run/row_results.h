// Results of a row from its m and l.
#pragma once

#include <cmath>
#include <numbers>

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

}  // namespace treadle::run
