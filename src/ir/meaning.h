// The meaning of the operations that C++ does not already have as we mean them. docs/ir.md says the
// same in words.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace treadle::ir::meaning {

// Integers wrap at 64 bits; signed overflow would be undefined in C++.
inline std::int64_t wrap(std::uint64_t value) { return static_cast<std::int64_t>(value); }
inline std::uint64_t raw(std::int64_t value) { return static_cast<std::uint64_t>(value); }

// Rounds towards minus infinity. A zero divisor gives 0 here and poison in the interpreter.
inline std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrap(0 - raw(a));  // the one quotient that does not fit wraps
  const std::int64_t quotient = a / b;
  return quotient - static_cast<std::int64_t>(a % b != 0 && (a < 0) != (b < 0));
}

// Has the sign of the divisor.
inline std::int64_t mod(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Amounts outside 0..63 shift everything out.
inline std::int64_t shift_left(std::int64_t a, std::int64_t by) {
  return by < 0 || by > 63 ? 0 : wrap(raw(a) << by);
}
inline std::int64_t shift_right(std::int64_t a, std::int64_t by) {
  return a >> (by < 0 || by > 63 ? 63 : by);
}

inline std::int64_t sign(std::int64_t a) { return (a > 0) - (a < 0); }
inline double sign(double a) {
  return static_cast<double>((a > 0) - (a < 0));
}  // of NaN: 0, as in PyTorch

// NaN wins over every number.
inline double min(double a, double b) { return a < b || std::isnan(a) ? a : b; }
inline double max(double a, double b) { return a > b || std::isnan(a) ? a : b; }

inline double sigmoid(double a) { return 1.0 / (1.0 + std::exp(-a)); }

// Towards zero, saturating; NaN gives 0.
inline std::int64_t to_int(double a) {
  constexpr double limit = 9223372036854775808.0;  // 2^63
  if (std::isnan(a)) return 0;
  if (a >= limit) return std::numeric_limits<std::int64_t>::max();
  if (a < -limit) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(a);
}

}  // namespace treadle::ir::meaning
