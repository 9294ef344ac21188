#include "run/forward_kernels.h"

#include "run/ask.h"

namespace treadle::run {

ForwardKernels::ForwardKernels(jit::Engine& engine, ForwardSpec spec)
    : engine_(engine), spec_(std::move(spec)) {
  for (int vectors = 1; vectors <= plan::most_vectors; ++vectors) {
    plans_.push_back(
        plan::plan_tile(spec_.target, spec_.compute, spec_.dim, spec_.value_dim, vectors));
  }
}

plan::ForwardKernelSpec ForwardKernels::block_spec(int vectors, bool masked, bool careful) const {
  return {.plan = plan(vectors),
          .score = spec_.score,
          .score_facts = spec_.score_facts,
          .masked = masked,
          .mask = masked ? spec_.mask : ir::Graph(),
          .mask_facts = spec_.mask_facts,
          .exact_nonfinite = careful};
}

BlockKernel* ForwardKernels::block(int vectors, bool masked, bool careful) {
  const int which = (vectors - 1) * 4 + (masked ? 2 : 0) + (careful ? 1 : 0);
  return ask(blocks_[static_cast<std::size_t>(which)], engine_,
             [&] { return block_spec(vectors, masked, careful); });
}

CopyKernel* ForwardKernels::copy(Copy& kept, DType from, DType to, std::int64_t length) {
  return ask(kept, engine_, [&] { return plan::CopySpec{spec_.target, from, to, length}; });
}

FlipKernel* ForwardKernels::flip(Flips& kept, int vectors, std::int64_t length, bool to_rows) {
  return ask(kept[static_cast<std::size_t>(vectors - 1)], engine_, [&] {
    return plan::TransposeSpec{.target = spec_.target,
                               .compute = spec_.compute,
                               .width = plan(vectors).width(),
                               .length = length,
                               .row = length,
                               .to_rows = to_rows};
  });
}

}  // namespace treadle::run
