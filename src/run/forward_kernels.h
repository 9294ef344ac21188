// The kernels of one kind of forward call.
//
// Which of them a call needs is known from its layout, and those are compiled before it runs
// (needed() and prepare()); only what nonfinite numbers need is compiled when such a tile turns up.
#pragma once

#include <array>

#include "layout/layout.h"
#include "plan/forward_kernel.h"
#include "plan/merge_kernel.h"
#include "plan/mod_plan.h"
#include "plan/transpose_kernel.h"
#include "run/lazy_kernel.h"
#include "run/rows.h"

namespace treadle::run {

struct ForwardKernels {
  // For tiles of one number of vectors.
  struct OfTile {
    plan::TilePlan plan;
    LazyKernel<plan::TransposeArgs> queries_to_lanes, sums_to_rows;
    LazyKernel<plan::TransposeArgs> sums_to_lanes;  // of states that a pass before left
    LazyKernel<plan::MergeArgs> merge;
    LazyKernel<plan::ForwardKernelArgs> full, masked;
    LazyKernel<plan::ForwardKernelArgs> exact_full, exact_masked;  // exact_nonfinite

    [[nodiscard]] const LazyKernel<plan::ForwardKernelArgs>& block(bool is_full, bool exact) const {
      if (exact) return is_full ? exact_full : exact_masked;
      return is_full ? full : masked;
    }
  };

  DType compute = DType::f32;
  double query_factor = 1;  // what queries are multiplied with besides the scale
  plan::ModScratch mods;    // what TileArgs::staged and frame point to
  std::array<OfTile, plan::most_vectors> tiles;  // by vectors - 1
  CopyKernel load_q, load_k, load_v, store_out;  // into the compute type, and out of it
  CopyKernel copy_sums;                          // of states, in the compute type

  [[nodiscard]] const OfTile& tile(int vectors) const {
    return tiles[static_cast<std::size_t>(vectors - 1)];
  }
  [[nodiscard]] const OfTile& widest() const { return tiles.back(); }
};

// Adds what has to be compiled before a call with this layout runs, for the only term of the mask or
// for one of several.
void needed(const ForwardKernels& kernels, const layout::Layout& layout, bool only,
            Missing& missing);

// Adds all of them: what any layout may need, and numbers that are not finite. `masked`: some pairs
// may be hidden.
void all_of(const ForwardKernels& kernels, bool masked, Missing& missing);

}  // namespace treadle::run
