// Which function computes an operation: in line, glibc's for vectors, or the C library's.
//
// In: an operation and its operands. Out: the result. Read emit_math() first.
#include "emit/llvm/math.h"

#include <fmt/format.h>
#include <llvm/Analysis/VectorUtils.h>

#include <algorithm>
#include <numeric>

#include "emit/llvm/math_inline.h"

namespace treadle::emit::llvm {
namespace {

using ir::Op;

::llvm::FixedVectorType* vector_type(Value* value) {
  return ::llvm::dyn_cast<::llvm::FixedVectorType>(value->getType());
}

// A function of the C library or of libmvec: it has no effect but its result.
Value* call(Builder& build, const std::string& name, ::llvm::ArrayRef<Value*> operands) {
  ::llvm::Type* type = operands[0]->getType();
  const ::llvm::SmallVector<::llvm::Type*> types(operands.size(), type);
  ::llvm::Module* module = build.GetInsertBlock()->getModule();
  ::llvm::FunctionCallee callee =
      module->getOrInsertFunction(name, ::llvm::FunctionType::get(type, types, false));
  auto* function = ::llvm::cast<::llvm::Function>(callee.getCallee());
  function->setDoesNotThrow();
  function->setDoesNotAccessMemory();
  function->setWillReturn();
  return build.CreateCall(callee, operands);
}

// "tanhf" of a float, "tanh" of a double.
std::string name_in_c(Op op, ::llvm::Type* type) {
  return fmt::format("{}{}", ir::info(op).text, type->getScalarType()->isFloatTy() ? "f" : "");
}

Value* each_lane(Builder& build, Op op, const Values& operands) {
  Value* result = ::llvm::PoisonValue::get(operands[0]->getType());
  const std::string name = name_in_c(op, operands[0]->getType());
  for (unsigned lane = 0; lane < vector_type(operands[0])->getNumElements(); ++lane) {
    Values scalars;
    for (Value* operand : operands) scalars.push_back(build.CreateExtractElement(operand, lane));
    result = build.CreateInsertElement(result, call(build, name, scalars), lane);
  }
  return result;
}

// The vector function ABI's letter for vectors of this size: SSE, AVX2 or AVX-512.
char letter_of(unsigned bytes) { return bytes == 64 ? 'e' : bytes == 32 ? 'd' : 'b'; }

// In pieces of the widest vectors that libmvec takes: _ZGVdN8v_tanhf takes 8 floats, _ZGVdN4vv_pow
// two times 4 doubles. Functions for other widths have other bits, so a shorter vector is filled up
// with its last lane, and a scalar fills all lanes.
Value* with_libmvec(Builder& build, Op op, const Values& operands) {
  ::llvm::Type* type = operands[0]->getType();
  const auto bytes = static_cast<unsigned>(build.target().libmvec);
  const unsigned piece = bytes * 8 / type->getScalarSizeInBits();
  const std::string name = fmt::format("_ZGV{}N{}{}_{}", letter_of(bytes), piece,
                                       operands.size() == 2 ? "vv" : "v", name_in_c(op, type));
  if (!type->isVectorTy()) {
    Values splats;
    for (Value* operand : operands) splats.push_back(build.CreateVectorSplat(piece, operand));
    return build.CreateExtractElement(call(build, name, splats), std::uint64_t{0});
  }
  const unsigned lanes = vector_type(operands[0])->getNumElements();
  ::llvm::SmallVector<Value*> results;
  for (unsigned begin = 0; begin < lanes; begin += piece) {
    ::llvm::SmallVector<int> part(piece);
    for (unsigned i = 0; i < piece; ++i) part[i] = static_cast<int>(std::min(begin + i, lanes - 1));
    Values parts;
    for (Value* operand : operands) {
      parts.push_back(piece == lanes ? operand : build.CreateShuffleVector(operand, part));
    }
    results.push_back(call(build, name, parts));
  }
  Value* all = ::llvm::concatenateVectors(build, results);
  if (lanes % piece == 0) return all;
  ::llvm::SmallVector<int> first(lanes);
  std::iota(first.begin(), first.end(), 0);
  return build.CreateShuffleVector(all, first);
}

bool is_inline(Op op) { return op == Op::exp2 || op == Op::exp || op == Op::tanh; }

Value* in_line(Builder& build, Op op, Value* x) {
  if (!x->getType()->isVectorTy())
    return build.CreateExtractElement(in_line(build, op, build.splat(x)), std::uint64_t{0});
  if (op == Op::exp2) return inline_exp2(build, x);
  return op == Op::exp ? inline_exp(build, x) : inline_tanh(build, x);
}

// 1 / (1 + exp(-x)). In fp32 exp would overflow where the result is still a number: there, left of
// 0, it is e / (1 + e) with e = exp(x). In fp64 the interpreter's exp overflows as well.
Value* sigmoid(Builder& build, Value* x) {
  ::llvm::Type* type = x->getType();
  Value* one = ::llvm::ConstantFP::get(type, 1.0);
  if (type->getScalarType()->isDoubleTy()) {
    Value* e = emit_math(build, Op::exp, {build.CreateFNeg(x)});
    return build.CreateFDiv(one, build.CreateFAdd(one, e));
  }
  Value* minus = build.CreateFNeg(build.CreateUnaryIntrinsic(::llvm::Intrinsic::fabs, x));
  Value* e = emit_math(build, Op::exp, {minus});
  Value* left = build.CreateFCmpOLT(x, ::llvm::ConstantFP::get(type, 0.0));
  return build.CreateFDiv(build.CreateSelect(left, e, one), build.CreateFAdd(one, e));
}

}  // namespace

Value* emit_math(Builder& build, Op op, const Values& operands) {
  if (op == Op::sigmoid) return sigmoid(build, operands[0]);
  ::llvm::Type* type = operands[0]->getType();
  if (is_inline(op) && type->getScalarType()->isFloatTy()) return in_line(build, op, operands[0]);
  if (build.target().libmvec > 0) return with_libmvec(build, op, operands);
  return type->isVectorTy() ? each_lane(build, op, operands)
                            : call(build, name_in_c(op, type), operands);
}

}  // namespace treadle::emit::llvm
