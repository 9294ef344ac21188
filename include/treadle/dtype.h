// Element types of tensors.
//
//   size_of(DType::bf16);    // 2
//   name_of(DType::f32);     // "f32"
//   dtype_of<double>;        // DType::f64
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "treadle/api.h"
#include "treadle/float16.h"
#include "treadle/float8.h"

namespace treadle {

// The type of an element.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, i16, i8, u8, boolean, e4m3, e5m2 };

constexpr std::size_t size_of(DType type);  // bytes
// "f32"; and what kind of number it is.
TREADLE_API std::string_view name_of(DType type);
TREADLE_API bool is_float(DType type);
TREADLE_API bool is_integer(DType type);

namespace detail {

// Throws: the number is that of no type.
[[noreturn]] TREADLE_API void no_dtype(DType type);

template <class T>
consteval DType dtype_for() {
  if constexpr (std::same_as<T, double>) {
    return DType::f64;
  } else if constexpr (std::same_as<T, float>) {
    return DType::f32;
  } else if constexpr (std::same_as<T, bf16>) {
    return DType::bf16;
  } else if constexpr (std::same_as<T, f16>) {
    return DType::f16;
  } else if constexpr (std::same_as<T, e4m3>) {
    return DType::e4m3;
  } else if constexpr (std::same_as<T, e5m2>) {
    return DType::e5m2;
  } else if constexpr (std::same_as<T, bool>) {
    return DType::boolean;
  } else if constexpr (std::integral<T> && sizeof(T) == 8 && std::is_signed_v<T>) {
    return DType::i64;  // long and long long alike
  } else if constexpr (std::same_as<T, std::int32_t>) {
    return DType::i32;
  } else if constexpr (std::same_as<T, std::int16_t>) {
    return DType::i16;
  } else if constexpr (std::same_as<T, std::int8_t>) {
    return DType::i8;
  } else {
    static_assert(std::same_as<T, std::uint8_t>, "not an element type of treadle::DType");
    return DType::u8;
  }
}

}  // namespace detail

// The type of elements that C++ calls T.
template <class T>
inline constexpr DType dtype_of = detail::dtype_for<T>();

// Here, because loops over rows ask for it.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16: return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
    case DType::e4m3:
    case DType::e5m2: return 1;
  }
  detail::no_dtype(type);
}

}  // namespace treadle
