// Copying kernels: a loop over rows, vectors of each row converted on the way.
//
// In: a spec. Out: a module whose function `kernel` copies rows. Read emit() first.
#include "emit/llvm/copy.h"

#include <utility>

#include "emit/llvm/convert.h"
#include "emit/llvm/kernel_function.h"

namespace treadle::emit::llvm {
namespace {

using plan::CopyArgs;

// As many elements at a time as fit a vector of the wider type.
DType counted_by(const plan::CopySpec& spec) {
  return spec.from == DType::f64 || spec.to == DType::f64 ? DType::f64 : DType::f32;
}

class CopyEmitter {
 public:
  explicit CopyEmitter(const plan::CopySpec& spec)
      : spec_(spec), kernel_("copy", spec.target, counted_by(spec)), build_(kernel_.build()) {}

  Module emit() && {
    const Arguments<CopyArgs>& args = kernel_.args();
    Value* source = args[&CopyArgs::source];
    Value* source_stride = args[&CopyArgs::source_stride];
    Value* source_index = args[&CopyArgs::source_index];
    Value* target = args[&CopyArgs::target];
    Value* target_stride = args[&CopyArgs::target_stride];
    Value* target_index = args[&CopyArgs::target_index];
    build_.loop(build_.index(0), args[&CopyArgs::count], 1, [&](Value* i) {
      Value* scale = nullptr;
      if (spec_.scaled) {
        Value* at = place(source_index, i);
        at = build_.CreateNSWMul(at, args[&CopyArgs::scale_stride]);
        scale = build_.CreateLoad(build_.getFloatTy(),
                                  build_.element(build_.getFloatTy(), args[&CopyArgs::scales], at));
      }
      copy_row(row_at(source, source_stride, source_index, i),
               row_at(target, target_stride, target_index, i), scale);
    });
    return std::move(kernel_).finish();
  }

 private:
  // The number of row i. Without an index nothing is read, so its address is replaced by one that can
  // be.
  Value* place(Value* index, Value* i) {
    Value* none = build_.CreateIsNull(index);
    Value* entry = build_.element(build_.getInt32Ty(), index, i);
    Value* readable = build_.CreateSelect(none, kernel_.args().address(), entry);
    Value* listed =
        build_.CreateSExt(build_.CreateLoad(build_.getInt32Ty(), readable), build_.getInt64Ty());
    return build_.CreateSelect(none, i, listed);
  }
  Value* row_at(Value* base, Value* stride, Value* index, Value* i) {
    return build_.element(build_.getInt8Ty(), base, build_.CreateNSWMul(place(index, i), stride));
  }

  void copy_part(Value* from, Value* to, Value* at, unsigned lanes, Value* scale) {
    ::llvm::Type* stored = stored_type(build_, spec_.from);
    ::llvm::Type* type = lanes == 1 ? stored : ::llvm::FixedVectorType::get(stored, lanes);
    Value* value = build_.load(type, build_.element(stored, from, at));
    DType now = spec_.from;
    if (scale != nullptr) {
      value = build_.CreateFMul(from_stored(build_, value, now, DType::f32),
                                lanes == 1 ? scale : build_.CreateVectorSplat(lanes, scale));
      now = DType::f32;
    }
    value = to_stored(build_, from_stored(build_, value, now, spec_.to), spec_.to);
    build_.store(value, build_.element(stored_type(build_, spec_.to), to, at));
  }

  void copy_row(Value* from, Value* to, Value* scale) {
    const std::int64_t lanes = build_.lanes();
    const std::int64_t whole = spec_.length - spec_.length % lanes;
    if (whole > 0) {
      build_.loop(build_.index(0), build_.index(whole), lanes,
                  [&](Value* at) { copy_part(from, to, at, static_cast<unsigned>(lanes), scale); });
    }
    std::int64_t at = whole;
    for (std::int64_t size = lanes / 2; size >= 1; size /= 2) {
      if (spec_.length - at < size) continue;
      copy_part(from, to, build_.index(at), static_cast<unsigned>(size), scale);
      at += size;
    }
  }

  const plan::CopySpec& spec_;
  KernelFunction<CopyArgs> kernel_;
  Builder& build_;
};

}  // namespace

Module emit_copy(const plan::CopySpec& spec) { return CopyEmitter(spec).emit(); }

}  // namespace treadle::emit::llvm
