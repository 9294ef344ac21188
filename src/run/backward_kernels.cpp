#include "run/backward_kernels.h"

#include <algorithm>

namespace treadle::run {
namespace {

// What is kept, made first if it is not there.
template <class Kernel, class Spec, class Emit>
Kernel* ask(std::atomic<Kernel*>& kept, jit::Engine& engine, const plan::Target& target,
            const Spec& spec, const Emit& emit) {
  Kernel* kernel = kept.load(std::memory_order_acquire);
  if (kernel == nullptr) {
    kernel = engine.function<Kernel>(key(spec), target, [&] { return emit(spec); });
    kept.store(kernel, std::memory_order_release);
  }
  return kernel;
}

}  // namespace

BackwardKernels::BackwardKernels(jit::Engine& engine, std::shared_ptr<ForwardKernels> forward,
                                 ir::Joint derivative, plan::ModFacts derivative_facts)
    : engine_(engine),
      forward_(std::move(forward)),
      derivative_(std::move(derivative)),
      derivative_facts_(std::move(derivative_facts)) {}

std::int64_t BackwardKernels::padded(std::int64_t length) const {
  const std::int64_t lanes = spec().target.lanes(spec().compute);
  return (length + lanes - 1) / lanes * lanes;
}

std::int64_t BackwardKernels::block_rows() const {
  constexpr std::int64_t most_at_once = 24;
  return plan().key_block + most_at_once;
}

emit::ReduceSpec BackwardKernels::reduce_spec(std::int64_t length) const {
  return {.target = spec().target,
          .compute = spec().compute,
          .width = plan().width(),
          .a_rows = block_rows(),
          .length = padded(length)};
}

emit::SlopeKernel* BackwardKernels::slopes(bool masked) {
  const auto make_spec = [&] {
    return emit::SlopeSpec{.plan = plan(),
                           .score = spec().score,
                           .score_facts = spec().score_facts,
                           .derivative = derivative_.graph,
                           .contributions = derivative_.contributions,
                           .derivative_facts = derivative_facts_,
                           .masked = masked,
                           .mask = masked ? spec().mask : ir::Graph(),
                           .mask_facts = spec().mask_facts};
  };
  std::atomic<emit::SlopeKernel*>& kept = slopes_[masked ? 1 : 0];
  if (emit::SlopeKernel* kernel = kept.load(std::memory_order_acquire)) return kernel;
  return ask(kept, engine_, spec().target, make_spec(), emit::emit_slopes);
}

emit::ReduceKernel* BackwardKernels::reduce(Reduce& kept, std::int64_t length) {
  return ask(kept, engine_, spec().target, reduce_spec(length), emit::emit_reduce);
}

emit::CopyKernel* BackwardKernels::copy(Copy& kept, DType from, DType to, std::int64_t length) {
  return ask(kept, engine_, spec().target, emit::CopySpec{spec().target, from, to, length},
             emit::emit_copy);
}

}  // namespace treadle::run
