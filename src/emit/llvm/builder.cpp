// Loops, branches and arithmetic that all emitters share.
//
// Two traps of LLVM are handled here, once: vectors of a function that does not say how wide they
// may be are split into narrower ones, and llvm.fma without hardware is a call.
#include "emit/llvm/builder.h"

#include <llvm/IR/MDBuilder.h>

namespace treadle::emit::llvm {
namespace {

::llvm::BasicBlock* entry_of(::llvm::Function* function) {
  return function->empty() ? ::llvm::BasicBlock::Create(function->getContext(), "entry", function)
                           : &function->back();
}

}  // namespace

Builder::Builder(::llvm::Function* function, const plan::Target& target, DType compute)
    : ::llvm::IRBuilder<>(entry_of(function)),
      target_(target),
      compute_(compute),
      lanes_(target.lanes(compute)) {}

Value* Builder::splat(Value* value) {
  return value->getType()->isVectorTy() ? value
                                        : CreateVectorSplat(static_cast<unsigned>(lanes_), value);
}

Value* Builder::fma(Value* a, Value* b, Value* c) {
  if (!target_.fma) return CreateFAdd(CreateFMul(a, b), c);
  return CreateIntrinsic(::llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Value* Builder::vector_at(Value* array, Value* row, std::int64_t width, int v) {
  Value* first = CreateNSWAdd(CreateNSWMul(row, index(width)), index(v * lanes_));
  return element(real(), array, first);
}

Value* Builder::load(::llvm::Type* type, Value* address) {
  const auto bytes = type->getScalarSizeInBits() / 8;
  return CreateAlignedLoad(type, address, ::llvm::Align(bytes));
}

void Builder::store(Value* value, Value* address) {
  const auto bytes = value->getType()->getScalarSizeInBits() / 8;
  CreateAlignedStore(value, address, ::llvm::Align(bytes));
}

Value* Builder::any(Value* lanes_of_bits) {
  const auto count = static_cast<unsigned>(lanes_);
  return CreateICmpNE(CreateBitCast(lanes_of_bits, getIntNTy(count)), getIntN(count, 0));
}

Values Builder::loop(Value* begin, Value* end, std::int64_t step, const Values& carried,
                     const Body& body) {
  ::llvm::Function* function = GetInsertBlock()->getParent();
  ::llvm::BasicBlock* before = GetInsertBlock();
  auto* inside = ::llvm::BasicBlock::Create(getContext(), "loop", function);
  auto* after = ::llvm::BasicBlock::Create(getContext(), "after", function);
  CreateCondBr(CreateICmpSLT(begin, end), inside, after);

  SetInsertPoint(inside);
  ::llvm::PHINode* i = CreatePHI(getInt64Ty(), 2);
  i->addIncoming(begin, before);
  std::vector<::llvm::PHINode*> phis;
  Values now;
  for (Value* value : carried) {
    phis.push_back(CreatePHI(value->getType(), 2));
    phis.back()->addIncoming(value, before);
    now.push_back(phis.back());
  }
  const Values next = body(i, now);
  ::llvm::BasicBlock* last = GetInsertBlock();
  Value* following = CreateNSWAdd(i, index(step));
  i->addIncoming(following, last);
  for (std::size_t n = 0; n < phis.size(); ++n) phis[n]->addIncoming(next[n], last);
  CreateCondBr(CreateICmpSLT(following, end), inside, after);

  SetInsertPoint(after);
  Values results;
  for (std::size_t n = 0; n < carried.size(); ++n) {
    ::llvm::PHINode* result = CreatePHI(carried[n]->getType(), 2);
    result->addIncoming(carried[n], before);
    result->addIncoming(next[n], last);
    results.push_back(result);
  }
  return results;
}

void Builder::loop(Value* begin, Value* end, std::int64_t step,
                   const std::function<void(Value*)>& body) {
  loop(begin, end, step, {}, [&](Value* i, const Values&) -> Values {
    body(i);
    return {};
  });
}

void Builder::when(Value* condition, const std::function<void()>& body, bool rare) {
  ::llvm::Function* function = GetInsertBlock()->getParent();
  auto* inside = ::llvm::BasicBlock::Create(getContext(), "when", function);
  auto* after = ::llvm::BasicBlock::Create(getContext(), "after", function);
  ::llvm::BranchInst* branch = CreateCondBr(condition, inside, after);
  if (rare) {
    branch->setMetadata(::llvm::LLVMContext::MD_prof,
                        ::llvm::MDBuilder(getContext()).createBranchWeights(1, 1000));
  }
  SetInsertPoint(inside);
  body();
  CreateBr(after);
  SetInsertPoint(after);
}

::llvm::Function* make_function(::llvm::Module& module, std::string_view name,
                                ::llvm::FunctionType* type, const plan::Target& target) {
  auto* function = ::llvm::Function::Create(type, ::llvm::Function::ExternalLinkage,
                                            ::llvm::StringRef(name.data(), name.size()), module);
  const std::string bits = std::to_string(target.vector_bytes * 8);
  function->addFnAttr(::llvm::Attribute::NoUnwind);
  function->addFnAttr("min-legal-vector-width", bits);
  function->addFnAttr("prefer-vector-width", bits);
  function->addFnAttr("no-trapping-math", "true");
  return function;
}

}  // namespace treadle::emit::llvm
