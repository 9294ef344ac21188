// Which emitter makes which kind of kernel.
//
// In: a spec of any kind. Out: a module.
#include "emit/llvm/emit.h"

#include "emit/llvm/backward.h"
#include "emit/llvm/copy.h"
#include "emit/llvm/decode.h"
#include "emit/llvm/forward.h"
#include "emit/llvm/merge.h"
#include "emit/llvm/peak.h"
#include "emit/llvm/reduce.h"
#include "emit/llvm/transpose.h"

namespace treadle::emit::llvm {
namespace {

// One overload per kind: a kind without an emitter does not compile.
struct Emit {
  Module operator()(const plan::ForwardKernelSpec& spec) const { return emit_forward(spec); }
  Module operator()(const plan::BackwardKernelSpec& spec) const { return emit_backward(spec); }
  Module operator()(const plan::DecodeKernelSpec& spec) const { return emit_decode(spec); }
  Module operator()(const plan::ReduceSpec& spec) const { return emit_reduce(spec); }
  Module operator()(const plan::CopySpec& spec) const { return emit_copy(spec); }
  Module operator()(const plan::TransposeSpec& spec) const { return emit_transpose(spec); }
  Module operator()(const plan::MergeSpec& spec) const { return emit_merge(spec); }
  Module operator()(const plan::PeakSpec& spec) const { return emit_peak(spec); }
};

}  // namespace

Module emit(const plan::KernelSpec& spec) { return std::visit(Emit(), spec); }

}  // namespace treadle::emit::llvm
