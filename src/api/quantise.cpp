// The loops of quantising, compiled once per pair of element types.
#include "api/quantise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/element.h"
#include "base/error.h"

namespace treadle::api {
namespace {

template <class T>
inline constexpr bool is_row_element = std::same_as<T, double> || std::same_as<T, float> ||
                                       std::same_as<T, bf16> || std::same_as<T, f16>;

template <class T>
inline constexpr bool is_stored =
    std::same_as<T, std::int8_t> || std::same_as<T, e4m3> || std::same_as<T, e5m2>;

// Calls f(std::type_identity<T>()) with the C++ type of a row's elements.
template <class F>
auto visit_row(DType type, F&& f) {
  return base::visit_dtype(type, [&](auto tag) -> decltype(f(std::type_identity<float>())) {
    if constexpr (is_row_element<typename decltype(tag)::type>) {
      return f(tag);
    } else {
      base::internal_error("quantise: rows of {}", name_of(type));
    }
  });
}

template <class To>
void store(void* data, std::int64_t offset, double value) {
  if constexpr (std::same_as<To, std::int8_t>) {
    // Adding and taking away 1.5 * 2^52 leaves an integer, rounded to nearest even.
    constexpr double shift = 0x1.8p52;
    base::store_as<To>(data, offset, value + shift - shift);
  } else {
    base::store_as<To>(data, offset, value);
  }
}

template <class To, class From>
void quantise_row(void* to, std::int64_t offset, const FloatRow& row, double scale, double most) {
  for (std::int64_t i = 0; i < row.count; ++i) {
    const double x = base::load_as<From>(row.data, row.offset + i * row.stride);
    store<To>(to, offset + i, std::clamp(x / scale, -most, most));
  }
}

}  // namespace

double most_of(DType stored) {
  switch (stored) {
    case DType::i8: return 127;
    case DType::e4m3: return 448;
    case DType::e5m2: return 57344;
    default: base::internal_error("quantise: {} is not stored with scales", name_of(stored));
  }
}

std::int64_t find_nonfinite(const FloatRow& row) {
  constexpr double greatest = std::numeric_limits<float>::max();
  return visit_row(row.dtype, [&](auto tag) -> std::int64_t {
    using T = typename decltype(tag)::type;
    const auto finite = [&](std::int64_t i) {  // false for NaN
      return std::abs(base::load_as<T>(row.data, row.offset + i * row.stride)) <= greatest;
    };
    bool all = true;
    for (std::int64_t i = 0; i < row.count; ++i) all &= finite(i);
    for (std::int64_t i = 0; i < row.count && !all; ++i)
      if (!finite(i)) return i;
    return -1;
  });
}

double greatest_of(const FloatRow& row) {
  return visit_row(row.dtype, [&](auto tag) -> double {
    using T = typename decltype(tag)::type;
    double greatest = 0;
    for (std::int64_t i = 0; i < row.count; ++i) {
      const double x = std::abs(base::load_as<T>(row.data, row.offset + i * row.stride));
      greatest = greatest < x ? x : greatest;
    }
    return greatest;
  });
}

float scale_for(DType stored, double greatest) {
  using Limits = std::numeric_limits<float>;
  if (greatest == 0) return 1;
  const double most = most_of(stored);
  auto largest = static_cast<float>(Limits::max() / most);
  if (largest * most > Limits::max()) largest = std::nextafter(largest, 0.0f);
  return std::clamp(static_cast<float>(std::min<double>(greatest / most, largest)), Limits::min(),
                    largest);
}

void quantise(void* to, DType stored, std::int64_t offset, const FloatRow& row, float scale) {
  const double most = most_of(stored);
  visit_row(row.dtype, [&](auto from) {
    base::visit_dtype(stored, [&](auto tag) {
      using To = typename decltype(tag)::type;
      if constexpr (is_stored<To>)
        quantise_row<To, typename decltype(from)::type>(to, offset, row, scale, most);
    });
  });
}

}  // namespace treadle::api
