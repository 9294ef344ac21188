#include "emit/llvm/power.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <array>
#include <span>

namespace treadle::emit::llvm {
namespace {

// 2^f = 1 + f * q(f) on [-1/2, 1/2], least largest relative error with the 1 held fixed: 9.1e-8 in
// exact arithmetic, 2.02 ulp as evaluated in f32; 1.3e-17 for f64.
constexpr std::array single{0x1.62e42ap-1, 0x1.ebf9bcp-3, 0x1.c6b752p-5, 0x1.3cea88p-7,
                            0x1.5bba0ep-10};
constexpr std::array twofold{0x1.62e42fefa39efp-1,  0x1.ebfbdff82c598p-3,  0x1.c6b08d704a0c2p-5,
                             0x1.3b2ab6fba1ddap-7,  0x1.5d87fe78a5276p-10, 0x1.430913096fd9fp-13,
                             0x1.ffcbfc670dcd4p-17, 0x1.62bfd47773353p-20, 0x1.b524fae627834p-24,
                             0x1.e6063f7217bc6p-28, 0x1.e9d3fe3952179p-32};

struct Format {
  int mantissa;   // bits
  double bias;    // of the exponent
  double lowest;  // number there is; a whole one
};

Format format_of(const Builder& build) {
  return build.compute() == DType::f64 ? Format{52, 1023, -0x1.fffffffffffffp1023}
                                       : Format{23, 127, -0x1.fffffep127};
}

}  // namespace

Value* round_even(Builder& build, Value* x) {
  if (build.target().rounding) return build.CreateUnaryIntrinsic(::llvm::Intrinsic::roundeven, x);
  // Adding and subtracting 2^mantissa rounds what is smaller; what is larger is whole.
  const double limit = static_cast<double>(std::int64_t{1} << format_of(build).mantissa);
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

Value* scale_down(Builder& build, Value* x, Value* n) {
  if (build.target().scale && build.target().vector_bytes == 64) {
    const bool wide = build.compute() == DType::f64;
    Value* all = ::llvm::ConstantInt::getAllOnesValue(
        wide ? build.getInt8Ty() : static_cast<::llvm::Type*>(build.getInt16Ty()));
    return build.CreateIntrinsic(
        wide ? ::llvm::Intrinsic::x86_avx512_mask_scalef_pd_512
             : ::llvm::Intrinsic::x86_avx512_mask_scalef_ps_512,
        {}, {x, n, ::llvm::UndefValue::get(x->getType()), all, build.getInt32(4)});
  }
  // The exponent's bits, put in place by a shift: adding 2^mantissa leaves a whole number in the
  // lowest bits.
  const Format format = format_of(build);
  ::llvm::Type* bits = build.vector(build.getIntNTy(build.compute() == DType::f64 ? 64 : 32));
  Value* kept = build.larger(n, build.numbers(-format.bias));
  const double shift = static_cast<double>(std::int64_t{1} << format.mantissa) + format.bias;
  Value* low = build.CreateBitCast(build.CreateFAdd(kept, build.numbers(shift)), bits);
  Value* power = build.CreateShl(
      low, ::llvm::ConstantInt::get(bits, static_cast<std::uint64_t>(format.mantissa)));
  return build.CreateFMul(x, build.CreateBitCast(power, build.reals()));
}

Value* power_below(Builder& build, Value* s, Value* m) {
  const std::span<const double> coefficients =
      build.compute() == DType::f64 ? std::span<const double>(twofold) : single;
  // -inf minus -inf would be NaN; a NaN in s stays.
  Value* kept = build.larger(build.numbers(format_of(build).lowest), s);
  Value* whole = round_even(build, kept);
  Value* fraction = build.CreateFSub(kept, whole);
  Value* sum = build.numbers(coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;)
    sum = build.fma(sum, fraction, build.numbers(coefficients[i]));
  sum = build.fma(sum, fraction, build.numbers(1));
  return scale_down(build, sum, build.CreateFSub(whole, m));
}

}  // namespace treadle::emit::llvm
