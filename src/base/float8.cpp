// Rounds numbers to 8-bit floats, and widens these.
//
// In: a float, double or integer. Out: the nearest 8-bit float, ties to even. Every float is a
// double, so narrowing from float is that from double.
#include "base/float8.h"

#include <bit>
#include <cmath>

#include "base/narrow.h"
#include "treadle/float16.h"
#include "treadle/float8.h"

namespace treadle {
namespace {

constexpr std::uint8_t float8_nan = 0x7f;  // of both, without the sign
constexpr std::uint8_t e5m2_infinity = 0x7c;

std::uint8_t with_sign_of(double value, std::int64_t size) {
  return static_cast<std::uint8_t>(size | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace

std::uint8_t e4m3::narrow(float value) { return base::e4m3_bits(static_cast<double>(value)); }

std::uint8_t e5m2::narrow(float value) { return base::e5m2_bits(static_cast<double>(value)); }

float e4m3::widen(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80) << 24;
  const std::uint32_t size = bits & 0x7f;
  std::uint32_t magnitude = (size << 20) + ((127 - 7) << 23);
  if (size == float8_nan) {
    magnitude = 0x7ff00000;
  } else if (size < 8) {
    magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-9F);
  }
  return std::bit_cast<float>(sign | magnitude);
}

float e5m2::widen(std::uint8_t bits) {
  const bool nan = (bits & 0x7f) > e5m2_infinity;
  constexpr int quiet = 0x200;
  return f16::widen(static_cast<std::uint16_t>(bits << 8 | (nan ? quiet : 0)));
}

namespace base {

std::uint8_t e4m3_bits(double value) {
  constexpr std::int64_t greatest = 0x7e;  // 448: also for infinity, which has no bits
  return with_sign_of(value, std::isnan(value) ? float8_nan : narrow_size<4, 3>(value, greatest));
}

std::uint8_t e5m2_bits(double value) {
  return with_sign_of(value,
                      std::isnan(value) ? float8_nan : narrow_size<5, 2>(value, e5m2_infinity));
}

// Exact as doubles, or far beyond the greatest.
std::uint8_t e4m3_bits(std::int64_t value) { return e4m3_bits(static_cast<double>(value)); }
std::uint8_t e5m2_bits(std::int64_t value) { return e5m2_bits(static_cast<double>(value)); }

}  // namespace base
}  // namespace treadle
