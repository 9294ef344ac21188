// One instruction sequence for each operation of a graph.
//
// In: operands as LLVM values. Out: the result, and its poison. Read value() first: one line per
// operation, in the order of ops.def.
#include "emit/llvm/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "emit/llvm/math.h"

namespace treadle::emit::llvm {
namespace {

using ir::Op;

// By the graph, not by the instruction: a scalar and a lane are to take the same steps.
bool maybe_nan(const ir::Node& node) {
  if (node.op == Op::constant) return node.type == ir::Type::real && std::isnan(node.real());
  return node.op != Op::to_float;
}

::llvm::ConstantInt* constant_integer(Value* value) {
  auto* constant = ::llvm::dyn_cast<::llvm::Constant>(value);
  if (constant != nullptr && constant->getType()->isVectorTy())
    constant = constant->getSplatValue();
  return ::llvm::dyn_cast_or_null<::llvm::ConstantInt>(constant);
}

}  // namespace

::llvm::Type* Arithmetic::shaped(::llvm::Type* type, Value* like) {
  return like->getType()->isVectorTy() ? build_.vector(type) : type;
}

void Arithmetic::level(Values& values) {
  const bool vector =
      std::ranges::any_of(values, [](Value* value) { return value->getType()->isVectorTy(); });
  if (!vector) return;
  for (Value*& value : values) value = build_.splat(value);
}

Value* Arithmetic::constant(const ir::Node& node) {
  switch (node.type) {
    case ir::Type::real: return ::llvm::ConstantFP::get(real(), node.real());
    case ir::Type::integer: return ::llvm::ConstantInt::getSigned(integer(), node.integer());
    case ir::Type::boolean: return build_.getInt1(node.boolean());
  }
  base::internal_error("emit: a constant of no type");
}

Value* Arithmetic::from_index(Value* value) {
  return build_.CreateSExtOrTrunc(value, shaped(integer(), value));
}

Value* Arithmetic::from_real(Value* value) {
  return build_.CreateFPCast(value, shaped(real(), value));
}

Arithmetic::Result Arithmetic::apply(const ir::Graph& graph, ir::NodeId id,
                                     std::span<const Result> operands) {
  const ir::Node& node = graph[id];
  Values in;
  for (const Result& operand : operands) in.push_back(operand.value);
  level(in);
  return {.value = value(graph, node, in), .poison = poison(node, operands)};
}

Value* Arithmetic::value(const ir::Graph& graph, const ir::Node& node, const Values& in) {
  const ir::Type from = graph[node.operands[0]].type;
  const bool is_real = node.type == ir::Type::real;
  const bool of_reals = from == ir::Type::real;
  Value* a = in[0];
  Value* b = in.size() > 1 ? in[1] : nullptr;
  ::llvm::Type* type = a->getType();
  const auto call = [&](::llvm::Intrinsic::ID function) {
    return build_.CreateUnaryIntrinsic(function, a);
  };
  const auto compare = [&](::llvm::CmpInst::Predicate reals, ::llvm::CmpInst::Predicate integers) {
    return of_reals ? build_.CreateFCmp(reals, a, b) : build_.CreateICmp(integers, a, b);
  };
  const auto number = [&](double value) { return ::llvm::ConstantFP::get(type, value); };
  const auto operand = [&](std::size_t i) -> Compared {
    return {in[i], maybe_nan(graph[node.operands[i]])};
  };
  using Is = ::llvm::CmpInst;

  switch (node.op) {
    case Op::input:
    case Op::constant:
    case Op::load: break;

    case Op::add: return is_real ? build_.CreateFAdd(a, b) : build_.CreateAdd(a, b);
    case Op::sub: return is_real ? build_.CreateFSub(a, b) : build_.CreateSub(a, b);
    case Op::mul: return is_real ? build_.CreateFMul(a, b) : build_.CreateMul(a, b);
    case Op::neg: return is_real ? build_.CreateFNeg(a) : build_.CreateNeg(a);
    case Op::abs:
      return is_real ? call(::llvm::Intrinsic::fabs)
                     : build_.CreateBinaryIntrinsic(::llvm::Intrinsic::abs, a, build_.getFalse());
    case Op::sign: return sign(a);
    case Op::min: return smaller(operand(0), operand(1));
    case Op::max: return larger(operand(0), operand(1));
    case Op::clamp: return smaller({larger(operand(0), operand(1))}, operand(2));

    case Op::div: return build_.CreateFDiv(a, b);
    case Op::sqrt: return call(::llvm::Intrinsic::sqrt);
    case Op::rsqrt: return build_.CreateFDiv(number(1), call(::llvm::Intrinsic::sqrt));
    case Op::pow:
    case Op::exp:
    case Op::exp2:
    case Op::expm1:
    case Op::log:
    case Op::log2:
    case Op::log1p:
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::asin:
    case Op::acos:
    case Op::atan:
    case Op::atan2:
    case Op::sinh:
    case Op::cosh:
    case Op::tanh:
    case Op::sigmoid:
    case Op::erf: return emit_math(build_, node.op, in);

    case Op::floor: return call(::llvm::Intrinsic::floor);
    case Op::ceil: return call(::llvm::Intrinsic::ceil);
    case Op::round: return call(::llvm::Intrinsic::roundeven);
    case Op::trunc: return call(::llvm::Intrinsic::trunc);

    case Op::floor_div: return floor_divide(a, b, false);
    case Op::mod: return floor_divide(a, b, true);
    case Op::bit_and:
    case Op::logical_and: return build_.CreateAnd(a, b);
    case Op::bit_or:
    case Op::logical_or: return build_.CreateOr(a, b);
    case Op::bit_xor:
    case Op::logical_xor: return build_.CreateXor(a, b);
    case Op::bit_not:
    case Op::logical_not: return build_.CreateNot(a);
    case Op::shift_left:
    case Op::shift_right: return shift(node.op, a, b);

    case Op::eq: return compare(Is::FCMP_OEQ, Is::ICMP_EQ);
    case Op::ne: return compare(Is::FCMP_UNE, Is::ICMP_NE);
    case Op::lt: return compare(Is::FCMP_OLT, Is::ICMP_SLT);
    case Op::le: return compare(Is::FCMP_OLE, Is::ICMP_SLE);
    case Op::gt: return compare(Is::FCMP_OGT, Is::ICMP_SGT);
    case Op::ge: return compare(Is::FCMP_OGE, Is::ICMP_SGE);

    case Op::isnan: return build_.CreateFCmpUNO(a, a);
    case Op::isinf:
      return build_.CreateFCmpOEQ(call(::llvm::Intrinsic::fabs),
                                  number(std::numeric_limits<double>::infinity()));

    case Op::where: return build_.CreateSelect(a, b, in[2]);
    case Op::to_float:
      return from == ir::Type::integer ? build_.CreateSIToFP(a, shaped(real(), a))
                                       : build_.CreateUIToFP(a, shaped(real(), a));
    case Op::to_int: return of_reals ? to_integer(a) : build_.CreateZExt(a, shaped(integer(), a));
    case Op::to_bool:
      return of_reals ? build_.CreateFCmpUNE(a, number(0)) : build_.CreateIsNotNull(a);
  }
  base::internal_error("emit: {} is no operation on values", ir::info(node.op).text);
}

// A NaN on either side wins. The plain select, one instruction on x86, returns the right side if
// either is NaN.
Value* Arithmetic::smaller(Compared a, Compared b) {
  if (a.value->getType()->isIntOrIntVectorTy())
    return build_.CreateBinaryIntrinsic(::llvm::Intrinsic::smin, a.value, b.value);
  if (!b.maybe_nan) std::swap(a, b);
  Value* least = build_.CreateSelect(build_.CreateFCmpOLT(a.value, b.value), a.value, b.value);
  if (!a.maybe_nan) return least;
  return build_.CreateSelect(build_.CreateFCmpUNO(a.value, a.value), a.value, least);
}

Value* Arithmetic::larger(Compared a, Compared b) {
  if (a.value->getType()->isIntOrIntVectorTy())
    return build_.CreateBinaryIntrinsic(::llvm::Intrinsic::smax, a.value, b.value);
  if (!b.maybe_nan) std::swap(a, b);
  Value* most = build_.larger(a.value, b.value);
  if (!a.maybe_nan) return most;
  return build_.CreateSelect(build_.CreateFCmpUNO(a.value, a.value), a.value, most);
}

Value* Arithmetic::sign(Value* a) {
  ::llvm::Type* type = a->getType();
  if (type->isIntOrIntVectorTy()) {
    Value* zero = ::llvm::ConstantInt::get(type, 0);
    Value* positive = build_.CreateZExt(build_.CreateICmpSGT(a, zero), type);
    return build_.CreateAdd(positive, build_.CreateSExt(build_.CreateICmpSLT(a, zero), type));
  }
  const auto number = [&](double value) { return ::llvm::ConstantFP::get(type, value); };
  Value* negative = build_.CreateSelect(build_.CreateFCmpOLT(a, number(0)), number(-1), number(0));
  return build_.CreateSelect(build_.CreateFCmpOGT(a, number(0)), number(1), negative);
}

// No divisor traps: 0 (where the value means nothing) and -1 (where the lowest integer would trap)
// are replaced by 1.
Value* Arithmetic::floor_divide(Value* a, Value* b, bool rest) {
  ::llvm::Type* type = a->getType();
  const auto number = [&](std::int64_t value) {
    return ::llvm::ConstantInt::getSigned(type, value);
  };
  ::llvm::ConstantInt* constant = constant_integer(b);
  if (constant != nullptr && constant->getValue().isPowerOf2() && !constant->isNegative()) {
    if (rest) return build_.CreateAnd(a, number(constant->getSExtValue() - 1));
    return build_.CreateAShr(a, number(constant->getValue().logBase2()));
  }

  Value* minus_one = build_.CreateICmpEQ(b, number(-1));
  Value* trapping = build_.CreateOr(minus_one, build_.CreateICmpEQ(b, number(0)));
  Value* by = build_.CreateSelect(trapping, number(1), b);
  Value* quotient;
  if (narrow_ && type->isVectorTy() && constant == nullptr) {
    // Vectors have no integer division. In fp64 the quotient of two that fit 32 bits is never
    // rounded onto the next integer: it is at least 2^-32 of itself away from it.
    ::llvm::Type* wide = build_.vector(build_.getDoubleTy());
    Value* real = build_.CreateFDiv(build_.CreateSIToFP(a, wide), build_.CreateSIToFP(by, wide));
    quotient = build_.CreateFPToSI(real, type);
  } else {
    quotient = build_.CreateSDiv(a, by);
  }
  // It was rounded towards zero.
  Value* left = build_.CreateSub(a, build_.CreateMul(quotient, by));
  Value* too_high =
      constant != nullptr && !constant->isNegative()
          ? build_.CreateICmpSLT(left, number(0))
          : build_.CreateAnd(build_.CreateICmpNE(left, number(0)),
                             build_.CreateICmpSLT(build_.CreateXor(left, by), number(0)));
  if (rest) return build_.CreateAdd(left, build_.CreateSelect(too_high, by, number(0)));
  Value* floored = build_.CreateAdd(quotient, build_.CreateSExt(too_high, type));
  return build_.CreateSelect(minus_one, build_.CreateNeg(a), floored);
}

// Of a narrow integer, 32 .. 63 places shift out what 64 bits would still hold on the left; but
// there only 0 fits 32 bits.
Value* Arithmetic::shift(Op op, Value* a, Value* by) {
  ::llvm::Type* type = a->getType();
  const unsigned bits = type->getScalarSizeInBits();
  Value* inside = build_.CreateICmpULT(by, ::llvm::ConstantInt::get(type, bits));
  Value* zero = ::llvm::ConstantInt::get(type, 0);
  if (op == Op::shift_left) {
    Value* shifted = build_.CreateShl(a, build_.CreateSelect(inside, by, zero));
    return build_.CreateSelect(inside, shifted, zero);
  }
  return build_.CreateAShr(
      a, build_.CreateSelect(inside, by, ::llvm::ConstantInt::get(type, bits - 1)));
}

// Where integers are known to fit 32 bits whatever captures hold, nothing saturates. In checked
// kernels that is known only of values that are not poisoned.
Value* Arithmetic::to_integer(Value* a) {
  ::llvm::Type* type = shaped(integer(), a);
  if (!narrow_ || reads_ != plan::Reads::proven) {
    return build_.CreateIntrinsic(::llvm::Intrinsic::fptosi_sat, {type, a->getType()}, {a});
  }
  Value* zero = ::llvm::ConstantFP::get(a->getType(), 0.0);
  return build_.CreateFPToSI(build_.CreateSelect(build_.CreateFCmpUNO(a, a), zero, a), type);
}

Value* Arithmetic::either(Value* a, Value* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  Values both{a, b};
  level(both);
  return build_.CreateOr(both[0], both[1]);
}

// The rules of ir/interpret_poison.cpp. Null: never.
Value* Arithmetic::poison(const ir::Node& node, std::span<const Result> in) {
  if (!checked()) return nullptr;
  Value* any = nullptr;
  for (const Result& operand : in) any = either(any, operand.poison);

  if (node.op == Op::floor_div || node.op == Op::mod) {
    Value* divisor = in[1].value;
    ::llvm::ConstantInt* constant = constant_integer(divisor);
    if (constant != nullptr && !constant->isZero()) return any;
    return either(any, build_.CreateIsNull(divisor));
  }
  if (any == nullptr) return nullptr;
  if (node.op == Op::where) {
    Values choice{in[0].value, in[1].poison, in[2].poison};
    for (Value*& value : choice) value = value == nullptr ? build_.getFalse() : value;
    level(choice);
    return either(in[0].poison, build_.CreateSelect(choice[0], choice[1], choice[2]));
  }
  if (node.op == Op::logical_and || node.op == Op::logical_or) {
    // Poisoned unless an operand without poison decides alone: so each of them must be poisoned or
    // undecided.
    for (const Result& operand : in) {
      const bool is_and = node.op == Op::logical_and;
      Value* undecided = is_and ? operand.value : build_.CreateNot(operand.value);
      Values both{any, either(operand.poison, undecided)};
      level(both);
      any = build_.CreateAnd(both[0], both[1]);
    }
  }
  return any;
}

}  // namespace treadle::emit::llvm
