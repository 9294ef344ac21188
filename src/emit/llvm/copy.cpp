#include "emit/llvm/copy.h"

#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstddef>

#include "emit/llvm/builder.h"
#include "emit/llvm/convert.h"

namespace treadle::emit::llvm {
namespace {

class CopyEmitter {
 public:
  CopyEmitter(Builder& build, const plan::CopySpec& spec, Value* args)
      : build_(build), spec_(spec), args_(args) {}

  void rows() {
    Value* source = field(build_.getPtrTy(), offsetof(plan::CopyArgs, source));
    Value* source_stride = field(build_.getInt64Ty(), offsetof(plan::CopyArgs, source_stride));
    Value* source_index = field(build_.getPtrTy(), offsetof(plan::CopyArgs, source_index));
    Value* target = field(build_.getPtrTy(), offsetof(plan::CopyArgs, target));
    Value* target_stride = field(build_.getInt64Ty(), offsetof(plan::CopyArgs, target_stride));
    Value* target_index = field(build_.getPtrTy(), offsetof(plan::CopyArgs, target_index));
    build_.loop(build_.index(0), field(build_.getInt64Ty(), offsetof(plan::CopyArgs, count)), 1,
                [&](Value* i) {
                  row(row_at(source, source_stride, source_index, i),
                      row_at(target, target_stride, target_index, i));
                });
  }

 private:
  Value* field(::llvm::Type* type, std::size_t offset) {
    return build_.CreateLoad(type, build_.element(build_.getInt8Ty(), args_,
                                                  build_.index(static_cast<std::int64_t>(offset))));
  }

  // Without an index nothing is read, so its address is replaced by one that can be.
  Value* row_at(Value* base, Value* stride, Value* index, Value* i) {
    Value* none = build_.CreateIsNull(index);
    Value* entry = build_.element(build_.getInt32Ty(), index, i);
    Value* readable = build_.CreateSelect(none, args_, entry);
    Value* listed =
        build_.CreateSExt(build_.CreateLoad(build_.getInt32Ty(), readable), build_.getInt64Ty());
    Value* which = build_.CreateSelect(none, i, listed);
    return build_.element(build_.getInt8Ty(), base, build_.CreateNSWMul(which, stride));
  }

  void part(Value* from, Value* to, Value* at, unsigned lanes) {
    ::llvm::Type* stored = stored_type(build_, spec_.from);
    ::llvm::Type* type = lanes == 1 ? stored : ::llvm::FixedVectorType::get(stored, lanes);
    Value* value = build_.load(type, build_.element(stored, from, at));
    value = to_stored(build_, from_stored(build_, value, spec_.from, spec_.to), spec_.to);
    build_.store(value, build_.element(stored_type(build_, spec_.to), to, at));
  }

  void row(Value* from, Value* to) {
    const std::int64_t lanes = build_.lanes();
    const std::int64_t whole = spec_.length - spec_.length % lanes;
    if (whole > 0) {
      build_.loop(build_.index(0), build_.index(whole), lanes,
                  [&](Value* at) { part(from, to, at, static_cast<unsigned>(lanes)); });
    }
    std::int64_t at = whole;
    for (std::int64_t size = lanes / 2; size >= 1; size /= 2) {
      if (spec_.length - at < size) continue;
      part(from, to, build_.index(at), static_cast<unsigned>(size));
      at += size;
    }
  }

  Builder& build_;
  const plan::CopySpec& spec_;
  Value* args_;
};

}  // namespace

Module emit_copy(const plan::CopySpec& spec) {
  Module made = make_module("copy", spec.target);
  ::llvm::LLVMContext& context = *made.context;
  auto* type = ::llvm::FunctionType::get(::llvm::Type::getVoidTy(context),
                                         {::llvm::PointerType::getUnqual(context)}, false);
  ::llvm::Function* function = make_function(*made.module, "kernel", type, spec.target);
  const bool wide = spec.from == DType::f64 || spec.to == DType::f64;
  Builder build(function, spec.target, wide ? DType::f64 : DType::f32);
  CopyEmitter(build, spec, function->getArg(0)).rows();
  build.CreateRetVoid();
  return made;
}

}  // namespace treadle::emit::llvm
