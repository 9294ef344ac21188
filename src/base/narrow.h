// The rounding that all narrow floats share.
//
//   narrow_size<5, 10>(-1.5, 0x7c00) == 0x3e00      // f16, where 0x7c00 is infinity
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace treadle::base {

// The bits of |value|, which is no NaN, in a format of so many bits: rounded once, to nearest even,
// and at most `greatest`.
template <int exponent_bits, int mantissa_bits>
std::int64_t narrow_size(double value, std::int64_t greatest) {
  constexpr int least_exponent = 2 - (1 << (exponent_bits - 1));  // of a normal number
  constexpr std::int64_t hidden_bit = std::int64_t{1} << 52;
  const auto bits = std::bit_cast<std::uint64_t>(value);

  // Below the least exponent the significand shifts further right instead. A shift of 54 leaves
  // nothing, as it should for zero and a double's own subnormals, which have no hidden bit.
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  const int shift = std::min(52 - mantissa_bits + std::max(0, least_exponent - exponent), 54);
  const std::int64_t significand =
      hidden_bit | (static_cast<std::int64_t>(bits) & (hidden_bit - 1));
  const std::int64_t odd = significand >> shift & 1;
  const std::int64_t rounded = (significand + (std::int64_t{1} << (shift - 1)) - 1 + odd) >> shift;

  // The hidden bit, and a carry out of the mantissa, add one to the exponent: as they should.
  const std::int64_t above = std::max(0, exponent - least_exponent);
  return std::min((above << mantissa_bits) + rounded, greatest);
}

}  // namespace treadle::base
