#include "run/forward_kernels.h"

#include "run/ask.h"

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
  const int which = (vectors - 1) * 4 + (masked ? 2 : 0) + (careful ? 1 : 0);
  return ask(
      blocks_[static_cast<std::size_t>(which)], engine_, spec_.target,
      [&] { return block_spec(vectors, masked, careful); }, emit::emit_block);
}

emit::CopyKernel* ForwardKernels::copy(Copy& kept, DType from, DType to, std::int64_t length) {
  return ask(
      kept, engine_, spec_.target, [&] { return emit::CopySpec{spec_.target, from, to, length}; },
      emit::emit_copy);
}

emit::FlipKernel* ForwardKernels::flip(Flips& kept, int vectors, std::int64_t length,
                                       bool to_rows) {
  return ask(
      kept[static_cast<std::size_t>(vectors - 1)], engine_, spec_.target,
      [&] {
        return emit::FlipSpec{.target = spec_.target,
                              .compute = spec_.compute,
                              .width = plan(vectors).width(),
                              .length = length,
                              .row = length,
                              .to_rows = to_rows};
      },
      emit::emit_flip);
}

}  // namespace treadle::run
