// Numbers to the bits of 8-bit floats with one rounding, to nearest even.
#pragma once

#include <cstdint>

namespace treadle::base {

std::uint8_t e4m3_bits(double value);
std::uint8_t e4m3_bits(std::int64_t value);
std::uint8_t e5m2_bits(double value);
std::uint8_t e5m2_bits(std::int64_t value);

}  // namespace treadle::base
