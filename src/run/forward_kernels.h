// The kernels that one kind of forward call needs, each compiled when first asked for.
#pragma once

#include <array>
#include <atomic>

#include "jit/engine.h"
#include "plan/copy_kernel.h"
#include "plan/forward_kernel.h"
#include "plan/tile_plan.h"
#include "plan/transpose_kernel.h"
#include "run/ask.h"

namespace treadle::run {

// Everything that the code depends on.
struct ForwardSpec {
  plan::Target target;
  DType q = DType::f32, k = DType::f32, v = DType::f32;
  DType compute = DType::f32;  // f64 if any of the three is, else f32
  std::int64_t dim = 0, value_dim = 0;
  plan::ScoreForm score;
  plan::ModFacts score_facts;
  ir::Graph mask;
  plan::ModFacts mask_facts;
};

// May be asked by several threads at once; the engine must outlive it.
class ForwardKernels {
 public:
  ForwardKernels(jit::Engine& engine, ForwardSpec spec);

  [[nodiscard]] const ForwardSpec& spec() const { return spec_; }
  [[nodiscard]] const plan::TilePlan& plan(int vectors) const {
    return plans_[static_cast<std::size_t>(vectors - 1)];
  }

  BlockKernel* block(int vectors, bool masked, bool careful);
  // Rows into the compute type, and results out of it. q's rows are results' type, too.
  CopyKernel* load_q() { return copy(load_q_, spec_.q, spec_.compute, spec_.dim); }
  CopyKernel* load_k() { return copy(load_k_, spec_.k, spec_.compute, spec_.dim); }
  CopyKernel* load_v() { return copy(load_v_, spec_.v, spec_.compute, spec_.value_dim); }
  CopyKernel* store_out() { return copy(store_out_, spec_.compute, spec_.q, spec_.value_dim); }
  // Rows of queries to the lanes of a tile, and sums back to rows; no room between rows.
  FlipKernel* queries_to_lanes(int vectors) { return flip(to_lanes_, vectors, spec_.dim, false); }
  FlipKernel* sums_to_rows(int vectors) { return flip(to_rows_, vectors, spec_.value_dim, true); }

  // The spec of one of them, for those who want to see its code.
  [[nodiscard]] plan::ForwardKernelSpec block_spec(int vectors, bool masked, bool careful) const;

 private:
  using Copy = std::atomic<CopyKernel*>;
  using Flips = std::array<std::atomic<FlipKernel*>, plan::most_vectors>;  // by vectors - 1
  CopyKernel* copy(Copy& kept, DType from, DType to, std::int64_t length);
  FlipKernel* flip(Flips& kept, int vectors, std::int64_t length, bool to_rows);

  jit::Engine& engine_;
  ForwardSpec spec_;
  std::vector<plan::TilePlan> plans_;  // by vectors - 1
  // By vectors - 1, masked, careful.
  std::array<std::atomic<BlockKernel*>, 4 * plan::most_vectors> blocks_{};
  Copy load_q_{}, load_k_{}, load_v_{}, store_out_{};
  Flips to_lanes_{}, to_rows_{};
};

}  // namespace treadle::run
