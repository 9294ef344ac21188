// Reads of captured buffers: addresses, bounds and conversion.
//
// In: a slot and indices. Out: the element as a value of the graph, and its poison. Read read()
// first.
#include "emit/llvm/captures.h"

#include <llvm/IR/Module.h>

#include <array>

#include "emit/llvm/convert.h"

namespace treadle::emit::llvm {
namespace {

// No kernel writes to a captured buffer: LLVM may move reads and join equal ones.
Value* invariant(Builder& build, Value* load) {
  auto* instruction = ::llvm::cast<::llvm::Instruction>(load);
  instruction->setMetadata(::llvm::LLVMContext::MD_invariant_load,
                           ::llvm::MDNode::get(build.getContext(), {}));
  return load;
}

}  // namespace

Captures::Captures(Arithmetic& ops, const ir::Graph& graph, const plan::ModFacts& facts)
    : ops_(ops), build_(ops.build()), graph_(graph), facts_(facts) {
  std::int64_t words = 0;
  for (const ir::Slot& slot : graph.slots()) {
    first_word_.push_back(words);
    words += 1 + 2 * slot.rank;
  }
}

void Captures::bind_when_read(Value* descriptors) {
  descriptors_ = descriptors;
  buffers_.assign(graph_.slots().size(), {});
}

void Captures::bind(Value* descriptors) {
  bind_when_read(descriptors);
  for (std::size_t slot = 0; slot < buffers_.size(); ++slot) bind_slot(slot);
}

void Captures::bind_slot(std::size_t slot) {
  std::int64_t next_word = first_word_[slot];
  const auto next = [&](::llvm::Type* type) {
    Value* address = build_.element(build_.getInt64Ty(), descriptors_, build_.index(next_word++));
    return invariant(build_, build_.CreateAlignedLoad(type, address, ::llvm::Align(8)));
  };
  const int rank = graph_.slots()[slot].rank;
  Buffer& buffer = buffers_[slot];
  buffer.data = next(build_.getPtrTy());
  for (int axis = 0; axis < rank; ++axis) {
    Value* size = next(build_.getInt64Ty());
    if (ops_.narrow()) {
      // An index of 32 bits lies inside a longer buffer if it is not negative.
      Value* longest = build_.index(std::int64_t{1} << 31);
      size = build_.CreateBinaryIntrinsic(::llvm::Intrinsic::umin, size, longest);
      size = build_.CreateTrunc(size, build_.getInt32Ty());
    }
    buffer.sizes.push_back(size);
  }
  for (int axis = 0; axis < rank; ++axis) buffer.strides.push_back(next(build_.getInt64Ty()));
  if (rank > 0 && slot < facts_.unit_stride.size() && facts_.unit_stride[slot]) {
    buffer.strides.back() = build_.index(1);
  }
}

Captures::Buffer& Captures::buffer(std::int32_t slot) {
  Buffer& found = buffers_[static_cast<std::size_t>(slot)];
  if (found.data == nullptr) bind_slot(static_cast<std::size_t>(slot));
  return found;
}

Value* Captures::address(std::int32_t slot, const Indices& indices) {
  const Buffer& from = buffer(slot);
  const auto add = [&](Value* a, Value* b) -> Value* {
    if (a == nullptr) return b;
    if (a->getType() == b->getType()) return build_.CreateAdd(a, b);
    return build_.CreateAdd(build_.splat(a), build_.splat(b));
  };
  std::array<Value*, 4> sums{};  // by level
  for (std::size_t axis = 0; axis < indices.size(); ++axis) {
    Value* index = indices[axis].at.value;
    Value* stride = from.strides[axis];
    const bool vector = index->getType()->isVectorTy();
    ::llvm::Type* wide = build_.getInt64Ty();
    index = build_.CreateSExt(index, vector ? build_.vector(wide) : wide);
    Value*& sum = sums[static_cast<std::size_t>(indices[axis].level)];
    sum = add(sum, build_.CreateMul(index, vector ? build_.splat(stride) : stride));
  }
  Value* offset = nullptr;
  for (Value* sum : sums) {
    if (sum != nullptr) offset = add(offset, sum);
  }
  return offset == nullptr ? from.data : build_.CreateGEP(element(slot), from.data, offset);
}

// The index has one use: were its parts read from memory twice, it would still be inside.
Value* Captures::clamped(std::int32_t slot, std::size_t axis, Value* index, Value* reach) {
  Value* size = buffer(slot).sizes[axis];
  if (reach == nullptr) reach = ::llvm::ConstantInt::get(size->getType(), 1);
  Value* last = build_.CreateSub(size, reach);
  if (index->getType()->isVectorTy()) last = build_.splat(last);
  return build_.CreateBinaryIntrinsic(::llvm::Intrinsic::umin, index, last);
}

Value* Captures::inside(const Buffer& buffer, const Indices& indices) {
  Value* all = build_.getTrue();
  for (std::size_t axis = 0; axis < indices.size(); ++axis) {
    Value* index = indices[axis].at.value;
    Value* size = buffer.sizes[axis];
    if (index->getType()->isVectorTy()) size = build_.splat(size);
    Value* here = build_.CreateICmpULT(index, size);  // false for negative ones, too
    if (here->getType() != all->getType()) {
      here = build_.splat(here);
      all = build_.splat(all);
    }
    all = build_.CreateAnd(all, here);
  }
  return all;
}

Value* Captures::zero_element() {
  constexpr const char* name = "treadle.nothing";
  ::llvm::Module* module = build_.GetInsertBlock()->getModule();
  ::llvm::Type* type = build_.getInt64Ty();
  if (::llvm::GlobalVariable* known = module->getGlobalVariable(name, true)) return known;
  return new ::llvm::GlobalVariable(*module, type, true, ::llvm::GlobalValue::PrivateLinkage,
                                    build_.getInt64(0), name);
}

Captures::Result Captures::read(std::int32_t slot, Indices indices) {
  // What is compared is what is followed, even if the memory it came from changes in between.
  if (ops_.checked())
    for (Index& index : indices) index.at.value = build_.CreateFreeze(index.at.value);
  Value* where = address(slot, indices);
  Value* poison = nullptr;
  if (ops_.checked() && !indices.empty()) {
    Value* good = inside(buffer(slot), indices);
    Value* zero = zero_element();
    if (where->getType()->isVectorTy()) {
      zero = build_.splat(zero);
      good = build_.splat(good);
    }
    where = build_.CreateSelect(good, where, zero);
    poison = build_.CreateNot(good);
    for (const Index& index : indices) poison = ops_.either(poison, index.at.poison);
  }
  ::llvm::Type* type = element(slot);
  const ::llvm::Align align(type->getScalarSizeInBits() / 8);
  Value* raw = where->getType()->isVectorTy()
                   ? build_.CreateMaskedGather(build_.vector(type), where, align)
                   : invariant(build_, build_.load(type, where));
  return {.value = convert(slot, raw), .poison = poison};
}

Value* Captures::read_lanes(std::int32_t slot, Value* first, Value* active, Value* full,
                            bool backwards) {
  ::llvm::Type* type = element(slot);
  ::llvm::Type* vector = build_.vector(type);
  const unsigned bytes = type->getScalarSizeInBits() / 8;
  if (backwards) {
    first = build_.CreateGEP(type, first, build_.index(1 - build_.lanes()));
    active = build_.CreateVectorReverse(active);
  }
  const auto masked = [&] {
    return build_.CreateMaskedLoad(vector, first, ::llvm::Align(bytes), active,
                                   ::llvm::Constant::getNullValue(vector));
  };
  // Without such an instruction a masked load is a branch per lane; only the last tile should pay
  // for that.
  const plan::Target& target = build_.target();
  const bool has_masked = target.avx512 || (target.masked_loads && bytes >= 4);
  Value* raw;
  if (has_masked) {
    raw = masked();
  } else {
    ::llvm::Function* function = build_.GetInsertBlock()->getParent();
    auto* whole = ::llvm::BasicBlock::Create(build_.getContext(), "whole", function);
    auto* partly = ::llvm::BasicBlock::Create(build_.getContext(), "partly", function);
    auto* after = ::llvm::BasicBlock::Create(build_.getContext(), "after", function);
    build_.CreateCondBr(full, whole, partly);
    build_.SetInsertPoint(whole);
    Value* of_whole = invariant(build_, build_.load(vector, first));
    build_.CreateBr(after);
    build_.SetInsertPoint(partly);
    Value* of_part = masked();
    build_.CreateBr(after);
    build_.SetInsertPoint(after);
    ::llvm::PHINode* either = build_.CreatePHI(vector, 2);
    either->addIncoming(of_whole, whole);
    either->addIncoming(of_part, partly);
    raw = either;
  }
  return convert(slot, backwards ? build_.CreateVectorReverse(raw) : raw);
}

::llvm::Type* Captures::element(std::int32_t slot) {
  switch (graph_.slot(slot).dtype) {
    case DType::f64:
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::e4m3:
    case DType::e5m2: return stored_type(build_, graph_.slot(slot).dtype);
    case DType::i64: return build_.getInt64Ty();
    case DType::i32: return build_.getInt32Ty();
    case DType::i16: return build_.getInt16Ty();
    case DType::i8:
    case DType::u8:
    case DType::boolean: break;
  }
  return build_.getInt8Ty();
}

Value* Captures::convert(std::int32_t slot, Value* raw) {
  const DType dtype = graph_.slot(slot).dtype;
  ::llvm::Type* integer = ops_.integer();
  if (raw->getType()->isVectorTy()) integer = build_.vector(integer);
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::e4m3:
    case DType::e5m2: return ops_.from_real(from_stored(build_, raw, dtype, DType::f32));
    case DType::i64:
    case DType::i32:
    case DType::i16:
    case DType::i8: return build_.CreateSExtOrTrunc(raw, integer);
    case DType::u8: return build_.CreateZExt(raw, integer);
    case DType::boolean: break;
  }
  return build_.CreateIsNotNull(raw);
}

}  // namespace treadle::emit::llvm
