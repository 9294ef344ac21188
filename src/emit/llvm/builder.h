// A Builder: LLVM's, with the few shapes that every kernel is made of.
//
//   Builder build(function, target, DType::f32);
//   Value* sum = build.fma(a, b, c);          // a * b + c, with one rounding where there is FMA
//   build.loop(begin, end, 4, {zero}, [&](Value* i, const Values& carried) -> Values { ... });
//
// `real` is the float of the arithmetic, f32 or f64; a vector has as many of them as fill the
// target's vectors.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <string_view>
#include <vector>

#include "plan/target.h"

namespace treadle::emit::llvm {

using ::llvm::Value;
using Values = std::vector<Value*>;

class Builder : public ::llvm::IRBuilder<> {
 public:
  // Starts at the end of the function's only block, which is made when there is none.
  Builder(::llvm::Function* function, const plan::Target& target, DType compute);

  [[nodiscard]] const plan::Target& target() const { return target_; }
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] int lanes() const { return lanes_; }

  // Types.
  [[nodiscard]] ::llvm::Type* real() {
    return compute_ == DType::f64 ? getDoubleTy() : getFloatTy();
  }
  [[nodiscard]] ::llvm::VectorType* vector(::llvm::Type* element) {
    return ::llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
  }
  [[nodiscard]] ::llvm::VectorType* reals() { return vector(real()); }

  // Constants: of the arithmetic's float, alone or in every lane.
  [[nodiscard]] ::llvm::Constant* number(double value) {
    return ::llvm::ConstantFP::get(real(), value);
  }
  [[nodiscard]] ::llvm::Constant* numbers(double value) {
    return ::llvm::ConstantFP::get(reals(), value);
  }
  [[nodiscard]] ::llvm::ConstantInt* index(std::int64_t value) {
    return getInt64(static_cast<std::uint64_t>(value));
  }

  // One value in every lane; a vector stays as it is.
  Value* splat(Value* value);
  Value* fma(Value* a, Value* b, Value* c);
  // The larger; b where either is NaN. One instruction on x86.
  Value* larger(Value* a, Value* b) { return CreateSelect(CreateFCmpOGT(a, b), a, b); }
  // Whether some lane of a vector of i1 is true.
  Value* any(Value* lanes_of_bits);

  // Element `at` (an i64) of an array of `type`.
  Value* element(::llvm::Type* type, Value* array, Value* at) {
    return CreateInBoundsGEP(type, array, at);
  }
  // Vector v of row `row` (an i64) of an array of rows of `width` floats: its address.
  Value* vector_at(Value* array, Value* row, std::int64_t width, int v);
  // Memory that is aligned only as its elements are.
  Value* load(::llvm::Type* type, Value* address);
  void store(Value* value, Value* address);

  // for (i = begin; i < end; i += step) carried = body(i, carried); returns carried.
  using Body = std::function<Values(Value* i, const Values& carried)>;
  Values loop(Value* begin, Value* end, std::int64_t step, const Values& carried, const Body& body);
  void loop(Value* begin, Value* end, std::int64_t step, const std::function<void(Value*)>& body);
  // if (condition) body(); `rare`: the condition is expected to be false.
  void when(Value* condition, const std::function<void()>& body, bool rare = false);

 private:
  plan::Target target_;
  DType compute_;
  int lanes_;
};

// A function of this type in the module, with the attributes of every kernel: no exceptions, and
// vectors as wide as the target's.
::llvm::Function* make_function(::llvm::Module& module, std::string_view name,
                                ::llvm::FunctionType* type, const plan::Target& target);

}  // namespace treadle::emit::llvm
