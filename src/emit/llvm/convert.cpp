// bf16, f16, f32 and f64 into each other, and 8-bit types into them; with integer arithmetic where
// the target lacks f16.
//
// In: a loaded value, or one to be stored. Out: the same number in another type. Read from_stored()
// and to_stored() first.
#include "emit/llvm/convert.h"

#include "base/error.h"

namespace treadle::emit::llvm {
namespace {

// The type of `element`s in the shape of another type: alone or as many lanes.
::llvm::Type* shaped(::llvm::Type* like, ::llvm::Type* element) {
  const auto* vector = ::llvm::dyn_cast<::llvm::FixedVectorType>(like);
  return vector == nullptr ? element
                           : ::llvm::FixedVectorType::get(element, vector->getNumElements());
}

class Converter {
 public:
  Converter(Builder& build, ::llvm::Type* like)
      : build_(build),
        int32s_(shaped(like, build.getInt32Ty())),
        int16s_(shaped(like, build.getInt16Ty())),
        singles_(shaped(like, build.getFloatTy())),
        doubles_(shaped(like, build.getDoubleTy())) {}

  Value* widen_bf16(Value* stored) {
    return build_.CreateBitCast(build_.CreateShl(build_.CreateZExt(stored, int32s_), int32(16)),
                                singles_);
  }

  // A half's exponent in a float's place is 112 too small. A subnormal number is what lies beyond
  // the least normal one if that is put before it. Never is a subnormal float on the way, which
  // callers may have told the processor to take for zero.
  Value* widen_f16(Value* stored) {
    if (build_.target().half) {
      ::llvm::Type* half = shaped(int16s_, build_.getHalfTy());
      return build_.CreateFPExt(build_.CreateBitCast(stored, half), singles_);
    }
    Value* bits = build_.CreateZExt(stored, int32s_);
    Value* sign = build_.CreateShl(build_.CreateAnd(bits, int32(0x8000)), int32(16));
    Value* size = build_.CreateShl(build_.CreateAnd(bits, int32(0x7fff)), int32(13));
    Value* normal = build_.CreateAdd(size, int32(112U << 23));
    Value* beyond =
        build_.CreateFSub(build_.CreateBitCast(build_.CreateAdd(size, int32(113U << 23)), singles_),
                          ::llvm::ConstantFP::get(singles_, 0x1p-14));
    Value* finite = build_.CreateSelect(build_.CreateICmpULT(size, int32(1U << 23)),
                                        build_.CreateBitCast(beyond, int32s_), normal);
    Value* special = build_.CreateICmpUGE(size, int32(0x1f << 23));  // infinity and NaN
    Value* magnitude =
        build_.CreateSelect(special, build_.CreateOr(size, int32(0x7f800000)), finite);
    return build_.CreateBitCast(build_.CreateOr(sign, magnitude), singles_);
  }

  // The upper half of an f16.
  Value* widen_e5m2(Value* stored) {
    return widen_f16(build_.CreateShl(build_.CreateZExt(stored, int16s_), int16(8)));
  }

  // In an f16's place the number is 2^8 too small. NaN is the one that carries out of the mantissa
  // and the four bits of the exponent when its last bit is added: the carry makes it an f16's NaN.
  Value* widen_e4m3(Value* stored) {
    Value* bits = build_.CreateShl(build_.CreateSExt(stored, int16s_), int16(7));
    Value* half = build_.CreateAnd(bits, int16(0xbfff));  // the fifth bit was a copy of the sign
    Value* carry = build_.CreateAnd(build_.CreateAdd(half, int16(0x80)), int16(0x4000));
    return build_.CreateFMul(widen_f16(build_.CreateOr(half, carry)),
                             ::llvm::ConstantFP::get(singles_, 0x1p8));
  }

  Value* widen_i8(Value* stored) {
    return build_.CreateSIToFP(build_.CreateSExt(stored, int32s_), singles_);
  }

  Value* narrow_bf16(Value* single) {
    Value* bits = build_.CreateBitCast(single, int32s_);
    Value* odd = build_.CreateAnd(build_.CreateLShr(bits, int32(16)), int32(1));
    Value* rounded = build_.CreateAdd(bits, build_.CreateAdd(odd, int32(0x7fff)));
    // Rounding could carry a NaN into an infinity.
    Value* quiet = build_.CreateOr(bits, int32(0x400000));
    Value* kept = build_.CreateSelect(build_.CreateFCmpUNO(single, single), quiet, rounded);
    return build_.CreateTrunc(build_.CreateLShr(kept, int32(16)), int16s_);
  }

  Value* narrow_f16(Value* single) {
    if (build_.target().half) {
      ::llvm::Type* half = shaped(int16s_, build_.getHalfTy());
      return build_.CreateBitCast(build_.CreateFPTrunc(single, half), int16s_);
    }
    Value* bits = build_.CreateBitCast(single, int32s_);
    Value* size = build_.CreateAnd(bits, int32(0x7fffffff));
    Value* sign = build_.CreateLShr(build_.CreateXor(bits, size), int32(16));
    Value* odd = build_.CreateAnd(build_.CreateLShr(size, int32(13)), int32(1));
    Value* rebased = build_.CreateSub(build_.CreateAdd(size, build_.CreateAdd(odd, int32(0xfff))),
                                      int32(112u << 23));
    Value* normal = build_.CreateLShr(rebased, int32(13));
    // Beside 1/2 the last bit of a float is that of a subnormal half: the addition rounds.
    Value* beside = build_.CreateFAdd(build_.CreateBitCast(size, singles_),
                                      ::llvm::ConstantFP::get(singles_, 0.5));
    Value* small = build_.CreateSub(build_.CreateBitCast(beside, int32s_), int32(0x3f000000));
    Value* magnitude =
        build_.CreateSelect(build_.CreateICmpULT(size, int32(0x38800000)), small, normal);
    Value* infinite =
        build_.CreateSelect(build_.CreateFCmpUNO(single, single), int32(0x7e00), int32(0x7c00));
    magnitude =
        build_.CreateSelect(build_.CreateICmpUGE(size, int32(0x47800000)), infinite, magnitude);
    return build_.CreateTrunc(build_.CreateOr(sign, magnitude), int16s_);
  }

  // A float that rounds to 16 bits as the double would: rounded to odd.
  Value* odd_single(Value* twofold) {
    Value* single = build_.CreateFPTrunc(twofold, singles_);
    Value* back = build_.CreateFPExt(single, doubles_);
    Value* bits = build_.CreateBitCast(single, int32s_);
    const auto size = [&](Value* x) {
      return build_.CreateUnaryIntrinsic(::llvm::Intrinsic::fabs, x);
    };
    Value* larger = build_.CreateFCmpOGT(size(back), size(twofold));
    Value* below = build_.CreateSelect(larger, build_.CreateSub(bits, int32(1)), bits);
    Value* inexact = build_.CreateFCmpONE(back, twofold);
    Value* odd = build_.CreateSelect(inexact, build_.CreateOr(below, int32(1)), bits);
    return build_.CreateBitCast(odd, singles_);
  }

  Value* to_double(Value* single) { return build_.CreateFPExt(single, doubles_); }
  Value* to_single(Value* twofold) { return build_.CreateFPTrunc(twofold, singles_); }

 private:
  ::llvm::Constant* int32(std::uint32_t value) { return ::llvm::ConstantInt::get(int32s_, value); }
  ::llvm::Constant* int16(std::uint16_t value) { return ::llvm::ConstantInt::get(int16s_, value); }

  Builder& build_;
  ::llvm::Type *int32s_, *int16s_, *singles_, *doubles_;
};

Value* widened(Converter& convert, Value* stored, DType from) {
  switch (from) {
    case DType::f32: return stored;
    case DType::bf16: return convert.widen_bf16(stored);
    case DType::f16: return convert.widen_f16(stored);
    case DType::e4m3: return convert.widen_e4m3(stored);
    case DType::e5m2: return convert.widen_e5m2(stored);
    case DType::i8: return convert.widen_i8(stored);
    case DType::f64:
    case DType::i64:
    case DType::i32:
    case DType::i16:
    case DType::u8:
    case DType::boolean: break;
  }
  base::internal_error("from_stored: kernels read no {} as a float", name_of(from));
}

}  // namespace

::llvm::Type* stored_type(Builder& build, DType dtype) {
  if (dtype == DType::f64) return build.getDoubleTy();
  if (dtype == DType::f32) return build.getFloatTy();
  return size_of(dtype) == 1 ? build.getInt8Ty() : build.getInt16Ty();
}

Value* from_stored(Builder& build, Value* stored, DType from, DType to) {
  if (from == DType::f64) return stored;
  Converter convert(build, stored->getType());
  Value* single = widened(convert, stored, from);
  return to == DType::f64 ? convert.to_double(single) : single;
}

int numbers_per_word(DType type) {
  if (type == DType::bf16) return 2;
  return type == DType::i8 ? 4 : 1;
}

Value* number_in_word(Builder& build, Value* word, int number, DType type) {
  const auto bits = static_cast<std::uint64_t>(32 / numbers_per_word(type));
  const std::uint64_t above = 32 - bits * static_cast<std::uint64_t>(number + 1);
  ::llvm::Type* singles = shaped(word->getType(), build.getFloatTy());
  if (type == DType::bf16) {
    Value* upper = number == 1 ? build.CreateAnd(word, 0xffff0000) : build.CreateShl(word, above);
    return build.CreateBitCast(upper, singles);
  }
  if (type != DType::i8) base::internal_error("number_in_word: no {}", name_of(type));
  Value* upper = build.CreateShl(word, above);
  return build.CreateSIToFP(build.CreateAShr(upper, 32 - bits), singles);
}

Value* to_stored(Builder& build, Value* value, DType to) {
  const bool wide = value->getType()->getScalarType()->isDoubleTy();
  if (to == DType::f64) return value;
  Converter convert(build, value->getType());
  if (to == DType::f32) return wide ? convert.to_single(value) : value;
  Value* single = wide ? convert.odd_single(value) : value;
  if (to != DType::bf16 && to != DType::f16)
    base::internal_error("to_stored: kernels write no {}", name_of(to));
  return to == DType::bf16 ? convert.narrow_bf16(single) : convert.narrow_f16(single);
}

}  // namespace treadle::emit::llvm
