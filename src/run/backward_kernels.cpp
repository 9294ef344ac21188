#include "run/backward_kernels.h"

#include "plan/separable.h"
#include "run/ask.h"

namespace treadle::run {

BackwardKernels::BackwardKernels(jit::Engine& engine, std::shared_ptr<ForwardKernels> forward,
                                 ir::Joint derivative, plan::ModFacts derivative_facts, int vectors)
    : engine_(engine),
      forward_(std::move(forward)),
      derivative_(std::move(derivative)),
      derivative_facts_(std::move(derivative_facts)),
      vectors_(vectors) {
  for (const ir::Contribution& contribution : derivative_.contributions)
    separable_.push_back(plan::is_separable(derivative_.graph, contribution));
}

std::int64_t BackwardKernels::padded(std::int64_t length) const {
  const std::int64_t lanes = spec().target.lanes(spec().compute);
  return (length + lanes - 1) / lanes * lanes;
}

std::int64_t BackwardKernels::block_rows() const {
  constexpr std::int64_t most_at_once = 24;
  return plan().key_block + most_at_once;
}

plan::ReduceSpec BackwardKernels::reduce_spec(std::int64_t length) const {
  return {.target = spec().target,
          .compute = spec().compute,
          .width = plan().width(),
          .a_rows = block_rows(),
          .length = padded(length)};
}

SlopeKernel* BackwardKernels::slopes(bool masked) {
  const auto make_spec = [&] {
    return plan::BackwardKernelSpec{.plan = plan(),
                                    .score = spec().score,
                                    .score_facts = spec().score_facts,
                                    .derivative = derivative_,
                                    .derivative_facts = derivative_facts_,
                                    .masked = masked,
                                    .mask = masked ? spec().mask : ir::Graph(),
                                    .mask_facts = spec().mask_facts};
  };
  return ask(slopes_[masked ? 1 : 0], engine_, make_spec);
}

ReduceKernel* BackwardKernels::reduce(Reduce& kept, std::int64_t length) {
  return ask(kept, engine_, [&] { return reduce_spec(length); });
}

FlipKernel* BackwardKernels::flip(Flip& kept, std::int64_t length, bool to_rows) {
  const auto make_spec = [&] {
    return plan::TransposeSpec{.target = spec().target,
                               .compute = spec().compute,
                               .width = plan().width(),
                               .length = length,
                               .row = to_rows ? length : padded(length),
                               .to_rows = to_rows};
  };
  return ask(kept, engine_, make_spec);
}

CopyKernel* BackwardKernels::copy(Copy& kept, DType from, DType to, std::int64_t length) {
  const auto make_spec = [&] { return plan::CopySpec{spec().target, from, to, length}; };
  return ask(kept, engine_, make_spec);
}

}  // namespace treadle::run
