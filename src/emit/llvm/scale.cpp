// Multiplication by powers of two, with the instruction for it or without.
//
// In: a vector x and a whole number n. Out: x * 2^n.
#include "emit/llvm/scale.h"

#include <llvm/IR/IntrinsicsX86.h>

namespace treadle::emit::llvm {
namespace {

bool has_scalef(const Builder& build, Value* x) {
  return build.target().avx512 && x->getType()->getPrimitiveSizeInBits() == 512;
}

Value* scalef(Builder& build, Value* x, Value* n) {
  constexpr std::uint32_t current_rounding = 4;
  const bool wide = x->getType()->getScalarType()->isDoubleTy();
  Value* all = ::llvm::ConstantInt::getAllOnesValue(
      wide ? build.getInt8Ty() : static_cast<::llvm::Type*>(build.getInt16Ty()));
  Value* unused = ::llvm::UndefValue::get(x->getType());
  return build.CreateIntrinsic(wide ? ::llvm::Intrinsic::x86_avx512_mask_scalef_pd_512
                                    : ::llvm::Intrinsic::x86_avx512_mask_scalef_ps_512,
                               {}, {x, n, unused, all, build.getInt32(current_rounding)});
}

}  // namespace

Value* scale_down(Builder& build, Value* x, Value* n) {
  if (has_scalef(build, x)) return scalef(build, x, n);
  // Adding 2^mantissa leaves a whole number in the lowest bits; the bias makes it an exponent's.
  const bool wide = build.compute() == DType::f64;
  const std::uint64_t mantissa = wide ? 52 : 23;
  const double bias = wide ? 1023 : 127;
  ::llvm::Type* bits = build.vector(build.getIntNTy(wide ? 64 : 32));
  Value* kept = build.larger(n, build.numbers(-bias));
  const double shift = static_cast<double>(std::uint64_t{1} << mantissa) + bias;
  Value* low = build.CreateBitCast(build.CreateFAdd(kept, build.numbers(shift)), bits);
  Value* power = build.CreateShl(low, ::llvm::ConstantInt::get(bits, mantissa));
  return build.CreateFMul(x, build.CreateBitCast(power, build.reals()));
}

Value* scale(Builder& build, Value* x, const Whole& n) {
  if (has_scalef(build, x)) return scalef(build, x, n.real);
  // 2^n itself may be too large or too small where x * 2^n is not: in two steps.
  ::llvm::Type* integers = n.integer->getType();
  const auto power = [&](Value* exponent) {
    Value* biased = build.CreateAdd(exponent, ::llvm::ConstantInt::get(integers, 127));
    return build.CreateBitCast(build.CreateShl(biased, 23), x->getType());
  };
  Value* half = build.CreateAShr(n.integer, 1);
  Value* other = build.CreateSub(n.integer, half);
  return build.CreateFMul(build.CreateFMul(x, power(half)), power(other));
}

}  // namespace treadle::emit::llvm
