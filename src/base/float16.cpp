// Rounds numbers to 16-bit floats, and widens these.
//
// In: a float, double or integer. Out: the nearest 16-bit float, ties to even, overflow to
// infinity. Read narrow_double() first; bf16 from float is simple enough to stand alone.
#include "base/float16.h"

#include <bit>
#include <cmath>

#include "base/narrow.h"
#include "treadle/float16.h"

namespace treadle {
namespace {

constexpr std::uint16_t sign_bit = 0x8000;

template <int exponent_bits, int mantissa_bits>
std::uint16_t narrow_double(double value) {
  static_assert(1 + exponent_bits + mantissa_bits == 16);
  constexpr std::int64_t infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  constexpr std::int64_t quiet = 1 << (mantissa_bits - 1);

  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 48 & sign_bit);
  if (std::isnan(value)) {
    const std::int64_t mantissa = static_cast<std::int64_t>(bits) & ((std::int64_t{1} << 52) - 1);
    return static_cast<std::uint16_t>(sign | infinity | quiet | mantissa >> (52 - mantissa_bits));
  }
  return static_cast<std::uint16_t>(
      sign | base::narrow_size<exponent_bits, mantissa_bits>(value, infinity));
}

}  // namespace

std::uint16_t bf16::narrow(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t quiet = 0x40;
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | quiet);
  const std::uint32_t odd = bits >> 16 & 1;
  return static_cast<std::uint16_t>((bits + 0x7fff + odd) >> 16);
}

std::uint16_t f16::narrow(float value) { return narrow_double<5, 10>(value); }

float f16::widen(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & sign_bit) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1f;
  const std::uint32_t mantissa = bits & 0x3ff;
  std::uint32_t magnitude = (exponent + 127 - 15) << 23 | mantissa << 13;
  if (exponent == 0) {
    magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24F);
  } else if (exponent == 0x1f) {
    magnitude = 0x7f800000 | mantissa << 13;
  }
  return std::bit_cast<float>(sign | magnitude);
}

namespace base {

std::uint16_t bf16_bits(double value) { return narrow_double<8, 7>(value); }

std::uint16_t bf16_bits(std::int64_t value) {
  // Beyond 2^53 not every integer is a double. There the low 12 bits lie far below bf16's last one
  // and matter only by being zero or not: one of them stands for all.
  constexpr std::int64_t exact = std::int64_t{1} << 53;
  if (value > exact || value < -exact) {
    value = (value & ~0xfff) | ((value & 0xfff) != 0 ? 0x800 : 0);
  }
  return bf16_bits(static_cast<double>(value));
}

std::uint16_t f16_bits(double value) { return narrow_double<5, 10>(value); }

// Exact as a double, or far beyond the greatest f16.
std::uint16_t f16_bits(std::int64_t value) { return f16_bits(static_cast<double>(value)); }

}  // namespace base
}  // namespace treadle
