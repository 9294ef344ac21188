// What is known of an integer over a box: an interval, perhaps an affine form, perhaps a residue.
//
//   q - kv with q in 96..143, kv in 0..95:  interval [1, 143], exactly 96 + t_q - t_kv
//
// The affine form is over the variables of the box (passes/box.h), so differences of correlated
// values stay tight, and floor_div and % of residue classes and of grid coordinates stay exact.
// Integers wrap at 64 bits; whatever might wrap is given up: any integer.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "passes/box.h"

namespace treadle::passes {

struct Affine {
  std::int64_t constant = 0;
  std::array<std::int64_t, variables> coefficient{};
};

struct IntegerRange {
  static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

  std::int64_t low = lowest;
  std::int64_t high = highest;
  bool is_affine = false;
  Affine affine;
  // The value is `remainder` modulo `modulus`; modulus 1 says nothing, modulus 0 that it is the
  // remainder itself.
  std::int64_t modulus = 1;
  std::int64_t remainder = 0;

  static IntegerRange anything() { return {}; }
  static IntegerRange constant(std::int64_t value);
  static IntegerRange between(std::int64_t low, std::int64_t high);
  static IntegerRange of(const Affine& form, const Counts& counts);

  [[nodiscard]] bool is_constant() const { return low == high; }
  [[nodiscard]] bool contains(std::int64_t value) const;
};

// One function per operation; `counts` are those of the box.
IntegerRange add(const IntegerRange& a, const IntegerRange& b, const Counts& counts);
IntegerRange subtract(const IntegerRange& a, const IntegerRange& b, const Counts& counts);
IntegerRange multiply(const IntegerRange& a, const IntegerRange& b, const Counts& counts);
IntegerRange negate(const IntegerRange& a, const Counts& counts);
IntegerRange absolute(const IntegerRange& a, const Counts& counts);
IntegerRange minimum(const IntegerRange& a, const IntegerRange& b);
IntegerRange maximum(const IntegerRange& a, const IntegerRange& b);
// A divisor that may be zero poisons; the ranges are those of the other divisors.
IntegerRange floor_divide(const IntegerRange& a, const IntegerRange& b, const Counts& counts);
IntegerRange modulo(const IntegerRange& a, const IntegerRange& b, const Counts& counts);
IntegerRange bit_and(const IntegerRange& a, const IntegerRange& b, const Counts& counts);
IntegerRange bit_or_xor(const IntegerRange& a, const IntegerRange& b);
IntegerRange shift_left(const IntegerRange& a, const IntegerRange& by, const Counts& counts);
IntegerRange shift_right(const IntegerRange& a, const IntegerRange& by, const Counts& counts);
// Either of the two.
IntegerRange join(const IntegerRange& a, const IntegerRange& b);

}  // namespace treadle::passes
