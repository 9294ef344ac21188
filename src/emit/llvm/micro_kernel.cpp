// Broadcasts of A times vectors of B, added to C in registers.
//
// In: addresses of A and B, and C as values. Out: C as values. Read step() first.
#include "emit/llvm/micro_kernel.h"

namespace treadle::emit::llvm {
namespace {

constexpr std::int64_t unroll = 4;

// Where a float, or each lane of a vector of them, is -0.
Value* is_minus_zero(Builder& build, Value* x) {
  ::llvm::Type* bits =
      x->getType()->getWithNewType(build.getIntNTy(build.real()->getScalarSizeInBits()));
  Value* minus_zero = build.CreateBitCast(::llvm::ConstantFP::getNegativeZero(x->getType()), bits);
  return build.CreateICmpEQ(build.CreateBitCast(x, bits), minus_zero);
}

// One k, whose parts of A and B begin at these addresses.
Values step(Builder& build, const MicroKernel& kernel, Value* a, Value* b, Values c) {
  Values columns, hidden;
  for (int v = 0; v < kernel.vectors; ++v) {
    Value* address = build.element(build.real(), b, build.index(v * build.lanes()));
    columns.push_back(build.load(build.reals(), address));
    if (kernel.hidden == MicroKernel::Hidden::in_b)
      hidden.push_back(is_minus_zero(build, columns.back()));
  }
  for (int r = 0; r < kernel.rows; ++r) {
    Value* address = build.element(build.real(), a, build.index(r * kernel.a_row));
    Value* element = build.load(build.real(), address);
    Value* factor = build.splat(element);
    Value* hidden_row = kernel.hidden == MicroKernel::Hidden::in_a
                            ? build.splat(is_minus_zero(build, element))
                            : nullptr;
    for (int v = 0; v < kernel.vectors; ++v) {
      Value*& sum = c[kernel.position(r, v)];
      Value* next = build.fma(factor, columns[static_cast<std::size_t>(v)], sum);
      Value* skipped = hidden.empty() ? hidden_row : hidden[static_cast<std::size_t>(v)];
      sum = skipped != nullptr ? build.CreateSelect(skipped, sum, next) : next;
    }
  }
  return c;
}

// `count` values of k from k on.
Values steps(Builder& build, const MicroKernel& kernel, Value* k, std::int64_t count, Values c) {
  Value* a =
      build.element(build.real(), kernel.a, build.CreateNSWMul(k, build.index(kernel.a_step)));
  Value* b =
      build.element(build.real(), kernel.b, build.CreateNSWMul(k, build.index(kernel.b_step)));
  for (std::int64_t i = 0; i < count; ++i) {
    c = step(build, kernel, build.element(build.real(), a, build.index(i * kernel.a_step)),
             build.element(build.real(), b, build.index(i * kernel.b_step)), std::move(c));
  }
  return c;
}

}  // namespace

Values accumulate(Builder& build, const MicroKernel& kernel, Values c) {
  Value* zero = build.index(0);
  if (const auto* fixed = ::llvm::dyn_cast<::llvm::ConstantInt>(kernel.depth)) {
    const std::int64_t depth = fixed->getSExtValue();
    const std::int64_t whole = depth - depth % unroll;
    if (whole > 0) {
      c = build.loop(zero, build.index(whole), unroll, c, [&](Value* k, const Values& now) {
        if (!kernel.meanwhile) return steps(build, kernel, k, unroll, now);
        constexpr std::int64_t half = unroll / 2;
        kernel.meanwhile();
        Values c_half = steps(build, kernel, k, half, now);
        kernel.meanwhile();
        return steps(build, kernel, build.CreateNSWAdd(k, build.index(half)), half,
                     std::move(c_half));
      });
    }
    return steps(build, kernel, build.index(whole), depth - whole, std::move(c));
  }
  if (kernel.meanwhile) kernel.meanwhile();
  Value* whole = build.CreateAnd(kernel.depth, build.index(-2));
  c = build.loop(zero, whole, 2, c,
                 [&](Value* k, const Values& now) { return steps(build, kernel, k, 2, now); });
  return build.loop(whole, kernel.depth, 1, c,
                    [&](Value* k, const Values& now) { return steps(build, kernel, k, 1, now); });
}

}  // namespace treadle::emit::llvm
