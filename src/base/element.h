// Elements by their run-time type.
//
//   double x = load_double(data, DType::bf16, 3);        the fourth element, widened
//   visit_dtype(type, [&](auto tag) {                    a loop compiled once per type
//     using T = typename decltype(tag)::type;
//     for (auto i = 0; i < n; ++i) sum += load_as<T>(data, i);
//   });
//
// Any byte in a boolean's place reads as 0 or 1.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/float16.h"
#include "base/float8.h"
#include "treadle/dtype.h"

namespace treadle::base {

inline constexpr std::array all_dtypes{DType::f64, DType::f32,     DType::bf16, DType::f16,
                                       DType::i64, DType::i32,     DType::i16,  DType::i8,
                                       DType::u8,  DType::boolean, DType::e4m3, DType::e5m2};

// Calls f(std::type_identity<T>()) with the C++ type of the elements.
template <class F>
decltype(auto) visit_dtype(DType type, F&& f) {
  switch (type) {
    case DType::f64: return f(std::type_identity<double>());
    case DType::f32: return f(std::type_identity<float>());
    case DType::bf16: return f(std::type_identity<bf16>());
    case DType::f16: return f(std::type_identity<f16>());
    case DType::i64: return f(std::type_identity<std::int64_t>());
    case DType::i32: return f(std::type_identity<std::int32_t>());
    case DType::i16: return f(std::type_identity<std::int16_t>());
    case DType::i8: return f(std::type_identity<std::int8_t>());
    case DType::u8: return f(std::type_identity<std::uint8_t>());
    case DType::boolean: return f(std::type_identity<bool>());
    case DType::e4m3: return f(std::type_identity<e4m3>());
    case DType::e5m2: return f(std::type_identity<e5m2>());
  }
  internal_error("visit_dtype: no element type has the number {}", static_cast<int>(type));
}

// Those that are widened before anything is done with them.
template <class T>
inline constexpr bool is_narrow_float =
    std::same_as<T, bf16> || std::same_as<T, f16> || std::same_as<T, e4m3> || std::same_as<T, e5m2>;

template <class T>
inline constexpr bool is_float_element = std::floating_point<T> || is_narrow_float<T>;

// What an element is read as: double for the floats, int64 for the integers and bool. Always exact.
template <class T>
using Wide = std::conditional_t<is_float_element<T>, double, std::int64_t>;

template <class T>
Wide<T> load_as(const void* data, std::int64_t offset) {
  if constexpr (std::same_as<T, bool>) {
    // Through bool itself, a byte of 2 would be undefined.
    return static_cast<const unsigned char*>(data)[offset] != 0 ? 1 : 0;
  } else if constexpr (is_narrow_float<T>) {
    return static_cast<double>(static_cast<float>(static_cast<const T*>(data)[offset]));
  } else {
    return static_cast<Wide<T>>(static_cast<const T*>(data)[offset]);
  }
}

// Truncates towards zero; what does not fit becomes the nearest limit, NaN becomes 0.
template <std::integral To>
To saturate(double value) {
  using Limits = std::numeric_limits<To>;
  if (std::isnan(value)) return 0;
  // The lower limit is exact as a double; the upper one of int64 rounds up to 2^63, hence >=.
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<To>(value);
}

template <std::integral To>
To saturate(std::int64_t value) {
  using Limits = std::numeric_limits<To>;
  return static_cast<To>(std::clamp<std::int64_t>(value, Limits::min(), Limits::max()));
}

// Floats round once, to nearest even; integers saturate; a boolean is value != 0, so NaN is true.
template <class T, class Number>
  requires(std::same_as<Number, double> || std::same_as<Number, std::int64_t>)
void store_as(void* data, std::int64_t offset, Number value) {
  if constexpr (std::same_as<T, bool>) {
    static_cast<unsigned char*>(data)[offset] = value != 0 ? 1 : 0;
  } else if constexpr (std::same_as<T, bf16>) {
    static_cast<T*>(data)[offset].bits = bf16_bits(value);
  } else if constexpr (std::same_as<T, f16>) {
    static_cast<T*>(data)[offset].bits = f16_bits(value);
  } else if constexpr (std::same_as<T, e4m3>) {
    static_cast<T*>(data)[offset].bits = e4m3_bits(value);
  } else if constexpr (std::same_as<T, e5m2>) {
    static_cast<T*>(data)[offset].bits = e5m2_bits(value);
  } else if constexpr (std::integral<T>) {
    static_cast<T*>(data)[offset] = saturate<T>(value);
  } else {
    static_cast<T*>(data)[offset] = static_cast<T>(value);
  }
}

// One element by its number in memory; strides are the caller's business. Conversions as above.
double load_double(const void* data, DType type, std::int64_t offset);
std::int64_t load_int(const void* data, DType type, std::int64_t offset);
void store_double(void* data, DType type, std::int64_t offset, double value);
void store_int(void* data, DType type, std::int64_t offset, std::int64_t value);

}  // namespace treadle::base
