#include "run/forward_kernels.h"

namespace treadle::run {

ForwardKernels::ForwardKernels(jit::Engine& engine, ForwardSpec spec)
    : engine_(engine), spec_(std::move(spec)) {
  for (int vectors = 1; vectors <= plan::most_vectors; ++vectors) {
    plans_.push_back(
        plan::plan_forward(spec_.target, spec_.compute, spec_.dim, spec_.value_dim, vectors));
  }
}

emit::BlockSpec ForwardKernels::block_spec(int vectors, bool masked, bool careful) const {
  return {.plan = plan(vectors),
          .score = spec_.score,
          .score_facts = spec_.score_facts,
          .masked = masked,
          .mask = masked ? spec_.mask : ir::Graph(),
          .mask_facts = spec_.mask_facts,
          .careful = careful};
}

emit::BlockKernel* ForwardKernels::block(int vectors, bool masked, bool careful) {
  std::atomic<emit::BlockKernel*>& kept =
      blocks_[static_cast<std::size_t>((vectors - 1) * 4 + (masked ? 2 : 0) + (careful ? 1 : 0))];
  emit::BlockKernel* kernel = kept.load(std::memory_order_acquire);
  if (kernel == nullptr) {
    const emit::BlockSpec spec = block_spec(vectors, masked, careful);
    kernel = engine_.function<emit::BlockKernel>(key(spec), spec_.target,
                                                 [&] { return emit::emit_block(spec); });
    kept.store(kernel, std::memory_order_release);
  }
  return kernel;
}

emit::CopyKernel* ForwardKernels::copy(Copy& kept, DType from, DType to, std::int64_t length) {
  emit::CopyKernel* kernel = kept.load(std::memory_order_acquire);
  if (kernel == nullptr) {
    const emit::CopySpec spec{spec_.target, from, to, length};
    kernel = engine_.function<emit::CopyKernel>(key(spec), spec_.target,
                                                [&] { return emit::emit_copy(spec); });
    kept.store(kernel, std::memory_order_release);
  }
  return kernel;
}

}  // namespace treadle::run
