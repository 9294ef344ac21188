// The two 16-bit floats as storage types. Arithmetic is done after widening to float.
//
//   treadle::bf16 x(3.14159f);  float y = x;   // y == 3.140625f
//
// Narrowing rounds to nearest even; infinities and NaN survive.
#pragma once

#include <bit>
#include <cstdint>

#include "treadle/api.h"

namespace treadle {

// 8 exponent bits, 7 stored mantissa bits: the upper half of a float.
struct bf16 {
  std::uint16_t bits = 0;  // of the number

  bf16() = default;
  // Rounded to nearest even; back it is exact.
  explicit bf16(float value) : bits(narrow(value)) {}
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  // The bits of a float, rounded to nearest even.
  TREADLE_API static std::uint16_t narrow(float value);
};

// IEEE 754 binary16: 5 exponent bits, 10 stored mantissa bits.
struct f16 {
  std::uint16_t bits = 0;  // of the number

  f16() = default;
  // Rounded to nearest even; back it is exact.
  explicit f16(float value) : bits(narrow(value)) {}
  operator float() const { return widen(bits); }

  // The bits of a float, rounded to nearest even, and back.
  TREADLE_API static std::uint16_t narrow(float value);
  TREADLE_API static float widen(std::uint16_t bits);
};

}  // namespace treadle
