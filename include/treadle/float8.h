// The two 8-bit floats as storage types, for keys and values. Arithmetic is done after widening to
// float, which is exact.
//
//   treadle::e4m3 x(3.14159f);  float y = x;   // y == 3.25f
//   treadle::e5m2 z(3.14159f);  float w = z;   // w == 3.0f
//
// Narrowing rounds to nearest even, bit for bit as torch 2.13 does.
#pragma once

#include <cstdint>

#include "treadle/api.h"

namespace treadle {

// 4 exponent bits, 3 stored mantissa bits; torch's float8_e4m3fn. There is no infinity: infinities,
// and what would round to more than 448, become 448 with their sign. NaN stays NaN.
struct e4m3 {
  std::uint8_t bits = 0;  // of the number

  e4m3() = default;
  // Rounded to nearest even; back it is exact.
  explicit e4m3(float value) : bits(narrow(value)) {}
  operator float() const { return widen(bits); }

  // The bits of a float, rounded to nearest even, and back.
  TREADLE_API static std::uint8_t narrow(float value);
  TREADLE_API static float widen(std::uint8_t bits);
};

// 5 exponent bits, 2 stored mantissa bits: the upper half of an f16; torch's float8_e5m2. The
// greatest number is 57344; what would round to more becomes infinity.
struct e5m2 {
  std::uint8_t bits = 0;  // of the number

  e5m2() = default;
  // Rounded to nearest even; back it is exact.
  explicit e5m2(float value) : bits(narrow(value)) {}
  operator float() const { return widen(bits); }

  // The bits of a float, rounded to nearest even, and back.
  TREADLE_API static std::uint8_t narrow(float value);
  TREADLE_API static float widen(std::uint8_t bits);
};

}  // namespace treadle
