// exp2, exp and tanh of fp32 vectors, as polynomials of a reduced argument.
//
// Coefficients are minimax fits of the relative error, rounded to fp32: exp2's by Remez, those of
// exp and tanh by reweighted least squares in 40 digits on 150 to 200 Chebyshev points; two of
// tanh's were then moved by single ulps while its error shrank. Errors over all 2^32 floats, of the
// same steps in C++ against the C library in fp64:
//
//             exp2   exp   tanh  sigmoid
//   fma       0.95   0.93  3.21  2.40   ulp
//   without   1.23   1.22  3.28  2.40
#include "emit/llvm/math_inline.h"

#include <span>

#include "emit/llvm/scale.h"

namespace treadle::emit::llvm {
namespace {

::llvm::Constant* number(Value* like, double value) {
  return ::llvm::ConstantFP::get(like->getType(), value);
}

// c0 + c1 x + c2 x^2 + ...
Value* polynomial(Builder& build, Value* x, std::span<const double> coefficients) {
  Value* sum = number(x, coefficients.back());
  for (auto c = coefficients.rbegin() + 1; c != coefficients.rend(); ++c) {
    sum = build.fma(sum, x, number(x, *c));
  }
  return sum;
}

// Keeps a NaN.
Value* clamp(Builder& build, Value* x, double low, double high) {
  x = build.larger(number(x, low), x);
  return build.CreateSelect(build.CreateFCmpOLT(number(x, high), x), number(x, high), x);
}

// Added to a number below 2^22 this rounds it to an integer, which is then in the lowest bits.
constexpr double magic = 0x1.8p23;

Whole after_magic(Builder& build, Value* sum) {
  ::llvm::Type* integers = build.vector(build.getInt32Ty());
  Value* shift = number(sum, magic);
  return {.integer = build.CreateSub(build.CreateBitCast(sum, integers),
                                     build.CreateBitCast(shift, integers)),
          .real = build.CreateFSub(sum, shift)};
}

}  // namespace

// 2^x = 2^n * 2^(x - n).
Value* inline_exp2(Builder& build, Value* x) {
  static constexpr double c[]{1.0,           0x1.62e430p-1,  0x1.ebfbdap-3, 0x1.c6aed4p-5,
                              0x1.3b2dbcp-7, 0x1.5f456ap-10, 0x1.41d334p-13};
  x = clamp(build, x, -150, 128);
  const Whole n = after_magic(build, build.CreateFAdd(x, number(x, magic)));
  return scale(build, polynomial(build, build.CreateFSub(x, n.real), c), n);
}

// e^x = 2^n * e^(x - n ln 2).
Value* inline_exp(Builder& build, Value* x) {
  // ln 2 in two parts: the first has so few bits that n times it is exact.
  constexpr double ln2_high = 0x1.63p-1, ln2_low = -0x1.bd0106p-13;
  static constexpr double c[]{1.0,           1.0,           0x1.fffffep-2, 0x1.5554b0p-3,
                              0x1.555674p-5, 0x1.1227b0p-7, 0x1.6bebfap-10};
  x = clamp(build, x, -104, 89);
  const Whole n = after_magic(build, build.fma(x, number(x, 0x1.715476p0), number(x, magic)));
  Value* rest = build.fma(n.real, number(x, -ln2_high), x);
  rest = build.fma(n.real, number(x, -ln2_low), rest);
  return scale(build, polynomial(build, rest, c), n);
}

// tanh |x| = -t / (2 + t) with t = e^(-2 |x|) - 1 = 2^n (2^f - 1) + (2^n - 1), which cancels
// nowhere; 2^f - 1 has no constant term, so that tiny x stay exact enough.
Value* inline_tanh(Builder& build, Value* x) {
  static constexpr double c[]{0x1.62e430p-1, 0x1.ebfbdap-3,  0x1.c6af6ep-5,
                              0x1.3b2ba0p-7, 0x1.5f07b4p-10, 0x1.4308f0p-13};
  constexpr double largest = 9.02;             // from here on the nearest float is 1
  constexpr double minus_two = -0x1.715476p1;  // in powers of two
  ::llvm::Type* integers = build.vector(build.getInt32Ty());
  const auto bits = [&](std::uint32_t value) { return ::llvm::ConstantInt::get(integers, value); };

  Value* size = build.CreateUnaryIntrinsic(::llvm::Intrinsic::fabs, x);
  Value* top = number(x, largest);
  size = build.CreateSelect(build.CreateFCmpOLT(top, size), top, size);  // keeps a NaN
  Value* sum = build.fma(size, number(x, minus_two), number(x, magic));
  Value* n = build.CreateFSub(sum, number(x, magic));
  Value* f = build.fma(size, number(x, minus_two), build.CreateFNeg(n));
  Value* power = build.CreateFMul(polynomial(build, f, c), f);
  Value* shifted = build.CreateShl(build.CreateBitCast(sum, integers), 23);
  Value* scale = build.CreateBitCast(build.CreateAdd(shifted, bits(0x3f800000)), x->getType());
  Value* t = build.fma(scale, power, build.CreateFSub(scale, number(x, 1)));
  Value* ratio = build.CreateFDiv(t, build.CreateFSub(number(x, -2), t));
  return build.CreateBinaryIntrinsic(::llvm::Intrinsic::copysign, ratio, x);
}

}  // namespace treadle::emit::llvm
