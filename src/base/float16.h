// Numbers to the bits of 16-bit floats with one rounding, to nearest even.
//
// Through float it would be two: 1 + 2^-8 + 2^-30 becomes 1 + 2^-8 as a float, a tie for bf16 that
// falls to 1, though the number lies above it. The same goes for large integers through double.
#pragma once

#include <cstdint>

namespace treadle::base {

std::uint16_t bf16_bits(double value);
std::uint16_t bf16_bits(std::int64_t value);
std::uint16_t f16_bits(double value);
std::uint16_t f16_bits(std::int64_t value);

}  // namespace treadle::base
