// The kernels of one kind of backward call. All tiles have one number of vectors.
#pragma once

#include "layout/layout.h"
#include "plan/backward_kernel.h"
#include "plan/mod_plan.h"
#include "plan/reduce_kernel.h"
#include "plan/transpose_kernel.h"
#include "run/lazy_kernel.h"
#include "run/rows.h"

namespace treadle::run {

struct BackwardKernels {
  plan::TilePlan plan;
  double query_factor = 1;             // what queries are multiplied with besides the scale
  plan::ModScratch mods;               // what TileArgs::staged and frame point to
  std::vector<bool> separable, keyed;  // by contribution: plan/separable.h

  LazyKernel<plan::BackwardKernelArgs> full, masked, exact_full, exact_masked;
  plan::ReduceSpec dk_spec, dv_spec;
  LazyKernel<plan::ReduceArgs> sum_dk, sum_dv, exact_sum_dk, exact_sum_dv;
  // Padded rows to the lanes of a tile, and sums back to contiguous rows.
  LazyKernel<plan::TransposeArgs> queries_to_lanes, dout_to_lanes, dq_to_rows;
  CopyKernel load_q, load_k, load_v, load_out;  // out and dout
  CopyKernel store_dq, store_dk, store_dv;

  [[nodiscard]] const LazyKernel<plan::BackwardKernelArgs>& block(bool is_full, bool exact) const {
    if (exact) return is_full ? exact_full : exact_masked;
    return is_full ? full : masked;
  }
};

// Adds what has to be compiled before a call with this layout runs. The exact ones are compiled when
// a call meets a NaN.
void needed(const BackwardKernels& kernels, const layout::Layout& layout, Missing& missing);

// Adds all of them. `masked`: some pairs may be hidden.
void all_of(const BackwardKernels& kernels, bool masked, Missing& missing);

}  // namespace treadle::run
