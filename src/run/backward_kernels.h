// The kernels that one kind of backward call needs, each compiled when first asked for.
#pragma once

#include <array>
#include <atomic>

#include "plan/backward_kernel.h"
#include "plan/reduce_kernel.h"
#include "run/forward_kernels.h"

namespace treadle::run {

class BackwardKernels {
 public:
  // `forward` has the copies of inputs and the spec of the mods; derivative is that of a general
  // score mod. All tiles are of so many vectors.
  BackwardKernels(jit::Engine& engine, std::shared_ptr<ForwardKernels> forward,
                  ir::Joint derivative, plan::ModFacts derivative_facts, int vectors);

  [[nodiscard]] const std::vector<ir::Contribution>& contributions() const {
    return derivative_.contributions;
  }
  // By contribution.
  [[nodiscard]] const std::vector<bool>& separable() const { return separable_; }

  [[nodiscard]] ForwardKernels& forward() { return *forward_; }
  [[nodiscard]] const ForwardSpec& spec() const { return forward_->spec(); }
  [[nodiscard]] const plan::ModFacts& derivative_facts() const { return derivative_facts_; }
  [[nodiscard]] const plan::TilePlan& plan() const { return forward_->plan(vectors_); }

  // Rows of dO, Q, dK and dV in scratch are padded to whole vectors.
  [[nodiscard]] std::int64_t padded(std::int64_t length) const;
  // Keys of a block in scratch, with room for whole steps of the sums.
  [[nodiscard]] std::int64_t block_rows() const;
  [[nodiscard]] plan::ReduceSpec reduce_spec(std::int64_t length) const;

  SlopeKernel* slopes(bool masked);
  ReduceKernel* reduce_k() { return reduce(reduce_k_, spec().dim); }
  ReduceKernel* reduce_v() { return reduce(reduce_v_, spec().value_dim); }
  // Padded rows to the lanes of a tile, and sums back to rows without room between them.
  FlipKernel* queries_to_lanes() { return flip(queries_, spec().dim, false); }
  FlipKernel* gradients_to_lanes() { return flip(gradients_, spec().value_dim, false); }
  FlipKernel* dq_to_rows() { return flip(dq_, spec().dim, true); }
  CopyKernel* load_out() { return copy(load_out_, spec().q, spec().compute, spec().value_dim); }
  CopyKernel* store_dq() { return copy(store_dq_, spec().compute, spec().q, spec().dim); }
  CopyKernel* store_dk() { return copy(store_dk_, spec().compute, spec().k, spec().dim); }
  CopyKernel* store_dv() { return copy(store_dv_, spec().compute, spec().v, spec().value_dim); }

 private:
  using Copy = std::atomic<CopyKernel*>;
  using Flip = std::atomic<FlipKernel*>;
  using Reduce = std::atomic<ReduceKernel*>;
  CopyKernel* copy(Copy& kept, DType from, DType to, std::int64_t length);
  ReduceKernel* reduce(Reduce& kept, std::int64_t length);
  FlipKernel* flip(Flip& kept, std::int64_t length, bool to_rows);

  jit::Engine& engine_;
  std::shared_ptr<ForwardKernels> forward_;
  ir::Joint derivative_;
  plan::ModFacts derivative_facts_;
  std::vector<bool> separable_;
  int vectors_;
  std::array<std::atomic<SlopeKernel*>, 2> slopes_{};  // by masked
  Reduce reduce_k_{}, reduce_v_{};
  Flip queries_{}, gradients_{}, dq_{};
  Copy load_out_{}, store_dq_{}, store_dk_{}, store_dv_{};
};

}  // namespace treadle::run
