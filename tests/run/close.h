// How near results have to be to the definition: as near as the definition itself comes when it is
// computed in the same precision, times a small number.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "forward_run.h"

namespace treadle::test {

// Rows that were looked at, and those in which rounding alone may change everything.
struct Compared {
  std::int64_t rows = 0, special = 0, skipped = 0;
};

namespace detail {

inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::bf16: return 0x1p-8;
    default: return 0x1p-11;
  }
}

inline bool same_kind(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::isinf(a) || std::isinf(b) ? a == b : true;
}

}  // namespace detail

// Infinities and NaN where they are expected, and finite numbers near: absolutely below 1 and
// relatively above.
inline void expect_alike(const Rows& got, const Rows& expected, double tolerance) {
  const auto check = [&](const Tensor& a, const Tensor& b, const char* what) {
    ASSERT_EQ(a.shape(), b.shape());
    const Array x{ConstView(a)}, y{ConstView(b)};
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      ASSERT_PRED2(detail::same_kind, x.data[i], y.data[i]) << what << ", element " << i;
      if (std::isfinite(y.data[i])) {
        ASSERT_NEAR(x.data[i], y.data[i], tolerance * std::max(1.0, std::abs(y.data[i])))
            << what << ", element " << i;
      }
    }
  };
  check(got.max, expected.max, "max");
  check(got.lse, expected.lse, "lse");
  check(got.out, expected.out, "out");
}

// `narrow` is the definition in f32, `wide` in f64: how far apart they are tells how much rounding
// matters. Scores must not round (fill_eighths), so that nothing but the mods' functions and the
// sums does; elements of V are at most 2.
inline void expect_close(const Rows& got, const Rows& narrow, const Rows& wide,
                         Compared& compared) {
  const Array out{ConstView(got.out)}, lse{ConstView(got.lse)}, max{ConstView(got.max)};
  const Array narrow_out{ConstView(narrow.out)}, narrow_lse{ConstView(narrow.lse)},
      narrow_max{ConstView(narrow.max)};
  const Array wide_out{ConstView(wide.out)}, wide_lse{ConstView(wide.lse)},
      wide_max{ConstView(wide.max)};
  const bool is_wide = got.lse.dtype() == DType::f64;
  const double rounding = detail::rounding_of(got.lse.dtype());
  const double out_rounding = detail::rounding_of(got.out.dtype());
  const double subnormal = got.out.dtype() == DType::f16 ? 0x1p-25 : 0;
  const auto value_dim = static_cast<std::size_t>(got.out.size(3));
  constexpr double largest = 2;

  const auto finite_row = [&](const Array& rows, const Array& x, const Array& y, std::size_t row) {
    bool finite = std::isfinite(x.data[row]) && std::isfinite(y.data[row]);
    for (std::size_t d = 0; d < value_dim; ++d)
      finite = finite && std::isfinite(rows.data[row * value_dim + d]);
    return finite;
  };
  // How much rounding matters to this problem.
  double apart = 0;
  for (std::size_t row = 0; row < lse.data.size(); ++row) {
    if (!finite_row(narrow_out, narrow_lse, narrow_max, row) ||
        !finite_row(wide_out, wide_lse, wide_max, row)) {
      continue;
    }
    apart = std::max(apart, std::abs(narrow_lse.data[row] - wide_lse.data[row]));
    apart = std::max(apart, std::abs(narrow_max.data[row] - wide_max.data[row]));
    for (std::size_t d = 0; d < value_dim; ++d) {
      const std::size_t at = row * value_dim + d;
      apart = std::max(apart, std::abs(narrow_out.data[at] - wide_out.data[at]));
    }
  }
  // f64 has 2^-29 of f32's rounding; a root of a number next to zero keeps half of these bits.
  if (is_wide) apart *= 0x1p-14;

  for (std::size_t row = 0; row < lse.data.size(); ++row) {
    ++compared.rows;
    if (!is_wide && finite_row(narrow_out, narrow_lse, narrow_max, row) !=
                        finite_row(wide_out, wide_lse, wide_max, row)) {
      ++compared.skipped;  // a root of a number next to zero: its rounding decides
      continue;
    }
    const Array& own_out = is_wide ? wide_out : narrow_out;
    const Array& own_lse = is_wide ? wide_lse : narrow_lse;
    const Array& own_max = is_wide ? wide_max : narrow_max;
    if (!finite_row(own_out, own_lse, own_max, row)) {
      ++compared.special;
      ASSERT_PRED2(detail::same_kind, lse.data[row], own_lse.data[row]) << "lse of row " << row;
      ASSERT_PRED2(detail::same_kind, max.data[row], own_max.data[row]) << "max of row " << row;
      for (std::size_t at = row * value_dim; at < (row + 1) * value_dim; ++at)
        ASSERT_PRED2(detail::same_kind, out.data[at], own_out.data[at]) << "element " << at;
      continue;
    }
    const double reach = 16 * rounding * (std::abs(wide_max.data[row]) + 32) + 6 * apart;
    if (reach > 0.1) {
      ++compared.skipped;
      continue;
    }
    ASSERT_NEAR(lse.data[row], wide_lse.data[row], reach) << "lse of row " << row;
    ASSERT_NEAR(max.data[row], wide_max.data[row], reach) << "max of row " << row;
    for (std::size_t at = row * value_dim; at < (row + 1) * value_dim; ++at) {
      ASSERT_NEAR(out.data[at], wide_out.data[at],
                  largest * reach + out_rounding * std::abs(wide_out.data[at]) + subnormal)
          << "element " << at << " of row " << row;
    }
  }
}

}  // namespace treadle::test
