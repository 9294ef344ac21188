// The range of every operation on integers.
//
// In: ranges of operands. Out: the range of the result, sound first: every value that the operation
// can take is inside. Read IntegerRange::of() first.
#include "passes/integer_range.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

#include "ir/meaning.h"

namespace treadle::passes {
namespace {

using Int = std::int64_t;

bool add_fits(Int a, Int b, Int& sum) { return !__builtin_add_overflow(a, b, &sum); }
bool multiply_fits(Int a, Int b, Int& product) { return !__builtin_mul_overflow(a, b, &product); }

// gcd of magnitudes; the magnitude of the lowest integer does not fit, so nothing is said of it.
Int gcd(Int a, Int b) {
  if (a == 1 || b == 1) return 1;
  if (a == IntegerRange::lowest || b == IntegerRange::lowest) return 1;
  return std::gcd(a, b);
}

std::optional<Affine> combined(const Affine& a, const Affine& b, Int factor) {
  Affine sum;
  Int scaled = 0;
  if (!multiply_fits(b.constant, factor, scaled) || !add_fits(a.constant, scaled, sum.constant))
    return std::nullopt;
  for (std::size_t i = 0; i < variables; ++i) {
    if (!multiply_fits(b.coefficient[i], factor, scaled) ||
        !add_fits(a.coefficient[i], scaled, sum.coefficient[i]))
      return std::nullopt;
  }
  return sum;
}

// Without an affine form, from an interval and a residue.
IntegerRange plain(Int low, Int high, Int modulus, Int remainder) {
  IntegerRange range = IntegerRange::between(low, high);
  if (low != high && modulus > 1) {
    range.modulus = modulus;
    range.remainder = ir::meaning::mod(remainder, modulus);
  }
  return range;
}

bool is_positive_constant(const IntegerRange& a) { return a.is_constant() && a.low > 0; }

// affine = divisor * quotient + rest, where the rest holds the variables whose coefficients the
// divisor does not divide.
struct Split {
  Affine quotient, rest;
};

Split split(const Affine& form, Int divisor) {
  Split parts;
  parts.quotient.constant = ir::meaning::floor_div(form.constant, divisor);
  parts.rest.constant = ir::meaning::mod(form.constant, divisor);
  for (std::size_t i = 0; i < variables; ++i) {
    if (form.coefficient[i] % divisor == 0) {
      parts.quotient.coefficient[i] = form.coefficient[i] / divisor;
    } else {
      parts.rest.coefficient[i] = form.coefficient[i];
    }
  }
  return parts;
}

}  // namespace

IntegerRange IntegerRange::constant(Int value) {
  IntegerRange range;
  range.low = range.high = value;
  range.is_affine = true;
  range.affine.constant = value;
  range.modulus = 0;
  range.remainder = value;
  return range;
}

IntegerRange IntegerRange::between(Int low, Int high) {
  if (low == high) return constant(low);
  IntegerRange range;
  range.low = low;
  range.high = high;
  return range;
}

IntegerRange IntegerRange::of(const Affine& form, const Counts& counts) {
  Int low = form.constant;
  Int high = form.constant;
  Int modulus = 0;
  for (std::size_t i = 0; i < variables; ++i) {
    if (form.coefficient[i] == 0 || counts[i] <= 1) continue;
    Int reach = 0;
    if (!multiply_fits(form.coefficient[i], counts[i] - 1, reach)) return anything();
    if (!add_fits(reach > 0 ? high : low, reach, reach > 0 ? high : low)) return anything();
    modulus = modulus == 1 ? 1 : gcd(modulus, form.coefficient[i]);
  }
  if (low == high) return constant(low);
  IntegerRange range;
  range.low = low;
  range.high = high;
  range.is_affine = true;
  range.affine = form;
  range.modulus = modulus;
  range.remainder = ir::meaning::mod(form.constant, modulus);
  return range;
}

bool IntegerRange::contains(Int value) const {
  if (value < low || value > high) return false;
  return modulus <= 1 || ir::meaning::mod(value, modulus) == remainder;
}

namespace {

IntegerRange linear(const IntegerRange& a, const IntegerRange& b, Int sign, const Counts& counts) {
  if (a.is_affine && b.is_affine) {
    const auto form = combined(a.affine, b.affine, sign);
    return form ? IntegerRange::of(*form, counts) : IntegerRange::anything();
  }
  Int low = 0;
  Int high = 0;
  const bool fits = sign > 0 ? add_fits(a.low, b.low, low) && add_fits(a.high, b.high, high)
                             : !__builtin_sub_overflow(a.low, b.high, &low) &&
                                   !__builtin_sub_overflow(a.high, b.low, &high);
  if (!fits) return IntegerRange::anything();
  const Int modulus = gcd(a.modulus, b.modulus);
  // Remainders are below their moduli, so their sum or difference cannot overflow; constants may,
  // hence the check.
  Int remainder = 0;
  const bool known = modulus > 1 && !__builtin_mul_overflow(b.remainder, sign, &remainder) &&
                     add_fits(a.remainder, remainder, remainder);
  return plain(low, high, known ? modulus : 1, remainder);
}

}  // namespace

IntegerRange add(const IntegerRange& a, const IntegerRange& b, const Counts& counts) {
  return linear(a, b, 1, counts);
}

IntegerRange subtract(const IntegerRange& a, const IntegerRange& b, const Counts& counts) {
  return linear(a, b, -1, counts);
}

IntegerRange negate(const IntegerRange& a, const Counts& counts) {
  return subtract(IntegerRange::constant(0), a, counts);
}

IntegerRange multiply(const IntegerRange& a, const IntegerRange& b, const Counts& counts) {
  if (a.is_constant() && !b.is_constant()) return multiply(b, a, counts);
  if (b.is_constant() && a.is_affine) {
    const auto form = combined({}, a.affine, b.low);
    return form ? IntegerRange::of(*form, counts) : IntegerRange::anything();
  }
  Int corner[4];
  const bool fits =
      multiply_fits(a.low, b.low, corner[0]) && multiply_fits(a.low, b.high, corner[1]) &&
      multiply_fits(a.high, b.low, corner[2]) && multiply_fits(a.high, b.high, corner[3]);
  if (!fits) return IntegerRange::anything();
  const auto [low, high] = std::minmax_element(std::begin(corner), std::end(corner));
  return IntegerRange::between(*low, *high);
}

IntegerRange absolute(const IntegerRange& a, const Counts& counts) {
  if (a.low >= 0) return a;
  if (a.low == IntegerRange::lowest) return IntegerRange::anything();  // its magnitude wraps
  if (a.high <= 0) return negate(a, counts);
  return IntegerRange::between(0, std::max(-a.low, a.high));
}

namespace {

// One of a and b, between these; what both leave modulo a common number, it leaves too.
IntegerRange one_of(const IntegerRange& a, const IntegerRange& b, Int low, Int high) {
  const Int modulus = gcd(a.modulus, b.modulus);
  const bool agree = modulus > 1 && ir::meaning::mod(a.remainder, modulus) ==
                                        ir::meaning::mod(b.remainder, modulus);
  return plain(low, high, agree ? modulus : 1, a.remainder);
}

}  // namespace

IntegerRange minimum(const IntegerRange& a, const IntegerRange& b) {
  if (a.high <= b.low) return a;
  if (b.high <= a.low) return b;
  return one_of(a, b, std::min(a.low, b.low), std::min(a.high, b.high));
}

IntegerRange maximum(const IntegerRange& a, const IntegerRange& b) {
  if (a.low >= b.high) return a;
  if (b.low >= a.high) return b;
  return one_of(a, b, std::max(a.low, b.low), std::max(a.high, b.high));
}

IntegerRange floor_divide(const IntegerRange& a, const IntegerRange& b, const Counts& counts) {
  using ir::meaning::floor_div;
  if (is_positive_constant(b)) {
    const Int divisor = b.low;
    if (a.is_affine) {
      const Split parts = split(a.affine, divisor);
      const IntegerRange rest = IntegerRange::of(parts.rest, counts);
      const Int period = floor_div(rest.low, divisor);
      if (period == floor_div(rest.high, divisor)) {
        Affine form = parts.quotient;
        if (add_fits(form.constant, period, form.constant)) return IntegerRange::of(form, counts);
      }
    }
    return plain(floor_div(a.low, divisor), floor_div(a.high, divisor), 1, 0);
  }
  if (b.low > 0) {
    // Farther from zero with the smaller divisor on both ends.
    const Int low = a.low >= 0 ? floor_div(a.low, b.high) : floor_div(a.low, b.low);
    const Int high = a.high >= 0 ? floor_div(a.high, b.low) : floor_div(a.high, b.high);
    return plain(low, high, 1, 0);
  }
  return IntegerRange::anything();
}

IntegerRange modulo(const IntegerRange& a, const IntegerRange& b, const Counts& counts) {
  using ir::meaning::floor_div;
  using ir::meaning::mod;
  if (is_positive_constant(b)) {
    const Int divisor = b.low;
    if (a.is_affine) {
      // What the divisor divides drops out.
      const Split parts = split(a.affine, divisor);
      const IntegerRange rest = IntegerRange::of(parts.rest, counts);
      const Int period = floor_div(rest.low, divisor);
      if (period == floor_div(rest.high, divisor)) {
        Affine form = parts.rest;
        Int start = 0;
        if (multiply_fits(period, -divisor, start) &&
            add_fits(form.constant, start, form.constant)) {
          return IntegerRange::of(form, counts);
        }
      }
    } else if (floor_div(a.low, divisor) == floor_div(a.high, divisor)) {
      return plain(mod(a.low, divisor), mod(a.high, divisor), 1, 0);
    }
    const Int common = gcd(a.modulus, divisor);
    const Int first = mod(a.remainder, common);
    return plain(first, divisor - common + first, common, first);
  }
  // The sign is the divisor's.
  if (b.low > 0) return IntegerRange::between(0, b.high - 1);
  if (b.high < 0 && b.low > IntegerRange::lowest) return IntegerRange::between(b.low + 1, 0);
  return IntegerRange::anything();
}

IntegerRange bit_and(const IntegerRange& a, const IntegerRange& b, const Counts& counts) {
  if (a.is_constant() && b.is_constant()) return IntegerRange::constant(a.low & b.low);
  if (a.is_constant()) return bit_and(b, a, counts);
  // Masks of the low bits are remainders.
  const bool low_bits = b.is_constant() && b.low >= 0 && b.low < IntegerRange::highest &&
                        std::has_single_bit(static_cast<std::uint64_t>(b.low) + 1);
  if (low_bits) return modulo(a, IntegerRange::constant(b.low + 1), counts);
  if (a.low >= 0 && b.low >= 0) return IntegerRange::between(0, std::min(a.high, b.high));
  if (a.low >= 0) return IntegerRange::between(0, a.high);
  if (b.low >= 0) return IntegerRange::between(0, b.high);
  return IntegerRange::anything();
}

IntegerRange bit_or_xor(const IntegerRange& a, const IntegerRange& b) {
  if (a.low < 0 || b.low < 0) return IntegerRange::anything();
  // No bit above the highest of the two.
  const auto bits = std::bit_width(static_cast<std::uint64_t>(std::max(a.high, b.high)));
  return IntegerRange::between(0, static_cast<Int>((std::uint64_t{1} << bits) - 1));
}

IntegerRange shift_left(const IntegerRange& a, const IntegerRange& by, const Counts& counts) {
  if (!by.is_constant()) return IntegerRange::anything();
  if (by.low < 0 || by.low > 63) return IntegerRange::constant(0);
  if (by.low > 62) return IntegerRange::anything();
  return multiply(a, IntegerRange::constant(Int{1} << by.low), counts);
}

IntegerRange shift_right(const IntegerRange& a, const IntegerRange& by, const Counts& counts) {
  using ir::meaning::shift_right;
  if (!by.is_constant())
    return IntegerRange::between(std::min<Int>(a.low, 0), std::max<Int>(a.high, 0));
  if (by.low < 0 || by.low > 62)
    return plain(shift_right(a.low, by.low), shift_right(a.high, by.low), 1, 0);
  return floor_divide(a, IntegerRange::constant(Int{1} << by.low), counts);
}

IntegerRange join(const IntegerRange& a, const IntegerRange& b) {
  if (a.is_constant() && b.is_constant() && a.low == b.low) return a;
  const Int low = std::min(a.low, b.low);
  const Int high = std::max(a.high, b.high);
  Int difference = 0;
  if (__builtin_sub_overflow(a.remainder, b.remainder, &difference))
    return IntegerRange::between(low, high);
  const Int modulus = gcd(gcd(a.modulus, b.modulus), difference);
  return plain(low, high, modulus, a.remainder);
}

}  // namespace treadle::passes
