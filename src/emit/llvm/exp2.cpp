// 2^(s - m) by a polynomial of the fraction of s and a power of two.
//
// In: vectors of scores and of whole maxima. Out: weights. Read exp2_below() first.
#include "emit/llvm/exp2.h"

#include <array>
#include <limits>
#include <span>

#include "emit/llvm/scale.h"

namespace treadle::emit::llvm {
namespace {

// 2^f = 1 + f * q(f) on [-1/2, 1/2], least largest relative error with the 1 held fixed: in exact
// arithmetic 9.1e-8 for f32 and 1.3e-17 for f64. As evaluated in f32, over all f from 2^-18 on:
// 2.04 ulp, 2.30 without FMA.
constexpr std::array coefficients_f32{0x1.62e42ap-1, 0x1.ebf9bcp-3, 0x1.c6b752p-5, 0x1.3cea88p-7,
                                      0x1.5bba0ep-10};
constexpr std::array coefficients_f64{
    0x1.62e42fefa39efp-1,  0x1.ebfbdff82c598p-3,  0x1.c6b08d704a0c2p-5,  0x1.3b2ab6fba1ddap-7,
    0x1.5d87fe78a5276p-10, 0x1.430913096fd9fp-13, 0x1.ffcbfc670dcd4p-17, 0x1.62bfd47773353p-20,
    0x1.b524fae627834p-24, 0x1.e6063f7217bc6p-28, 0x1.e9d3fe3952179p-32};

bool is_f64(const Builder& build) { return build.compute() == DType::f64; }

}  // namespace

Value* round_even(Builder& build, Value* x) {
  if (build.target().rounding) return build.CreateUnaryIntrinsic(::llvm::Intrinsic::roundeven, x);
  // Adding and subtracting 2^mantissa rounds what is smaller; what is larger is whole.
  const double limit = is_f64(build) ? 0x1p52 : 0x1p23;
  Value* size = build.CreateUnaryIntrinsic(::llvm::Intrinsic::fabs, x);
  Value* magic = build.CreateBinaryIntrinsic(::llvm::Intrinsic::copysign, build.numbers(limit), x);
  Value* rounded = build.CreateFSub(build.CreateFAdd(x, magic), magic);
  return build.CreateSelect(build.CreateFCmpOLT(size, build.numbers(limit)), rounded, x);
}

Value* round_up(Builder& build, Value* x) {
  if (build.target().rounding) return build.CreateUnaryIntrinsic(::llvm::Intrinsic::ceil, x);
  Value* near = round_even(build, x);
  Value* above = build.CreateFAdd(near, build.numbers(1));
  return build.CreateSelect(build.CreateFCmpOLT(near, x), above, near);
}

Value* exp2_below(Builder& build, Value* s, Value* m) {
  const std::span<const double> coefficients =
      is_f64(build) ? std::span<const double>(coefficients_f64) : coefficients_f32;
  // -inf minus -inf would be NaN, so -inf becomes the lowest number, a whole one; a NaN stays.
  const double lowest = is_f64(build) ? -0x1.fffffffffffffp1023 : -0x1.fffffep127;
  Value* kept = build.larger(build.numbers(lowest), s);
  Value* whole = round_even(build, kept);
  Value* fraction = build.CreateFSub(kept, whole);
  Value* sum = build.numbers(coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;)
    sum = build.fma(sum, fraction, build.numbers(coefficients[i]));
  sum = build.fma(sum, fraction, build.numbers(1));
  return scale_down(build, sum, build.CreateFSub(whole, m));
}

Growth growth(Builder& build, Value* old_maximum, Value* new_maximum) {
  Value* none = build.numbers(-std::numeric_limits<double>::infinity());
  const auto power = [&](Value* maximum, Value* otherwise) {
    return build.CreateSelect(build.CreateFCmpOEQ(maximum, none), otherwise,
                              round_up(build, maximum));
  };
  // Before anything was seen, any finite m will do for the zeros summed so far.
  Value* now = power(new_maximum, build.numbers(0));
  return {now, build.CreateFSub(power(old_maximum, now), now)};
}

}  // namespace treadle::emit::llvm
