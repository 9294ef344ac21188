// The backward kernel of a tile: P and dS of its scores, and its part of dQ.
//
//   P = 2^(s - lse2)     dS = P * (dP - delta), through the derivative of the score mod
//   f = 1, or with dropout 0 for pairs that are dropped and 1 / (1 - p) for others: dP = f dO V^T
//   dQ^T += K^T dS^T
//
// f P and dS are left for the sums over queries (plan/reduce_kernel.h) that make dV and dK.
#pragma once

#include <vector>

#include "base/hash.h"
#include "ir/joint.h"
#include "plan/fetch_list.h"
#include "plan/mod_facts.h"
#include "plan/score_form.h"
#include "plan/tile_args.h"
#include "plan/tile_plan.h"

namespace treadle::plan {

struct BackwardKernelArgs {
  TileArgs tile;
  const void* dout = nullptr;   // [value_dim][width]: dO^T
  const void* lse2 = nullptr;   // [width]: lse in powers of two; inf where nothing was seen
  const void* delta = nullptr;  // [width]: rowsum(dO * O) - dlse
  // [width], of exact_nonfinite kernels: 0 for lanes without a query and for queries that saw
  // nothing, else 1.
  const void* takes_part = nullptr;
  void* probabilities = nullptr;  // [count][width]: f P
  void* dscores = nullptr;        // [count][width]: dS, not yet scaled
  void* dq = nullptr;             // [dim][width], added to; not yet scaled
  // Where chunks end, in places of the block, if the block's keys are all that the tile sees of
  // these chunks: then each is summed on its own and added to dq, which is that of the chunks
  // before. None: the keys go on with dq. Kernels of sparse plans know of chunks, unless they are
  // exact_nonfinite.
  const std::int32_t* chunk_ends = nullptr;
  std::int64_t chunks = 0;
  // Kernels that know of chunks take from it. What is missing in the cache is only slower.
  FetchList* fetch = nullptr;
  const std::int64_t* derivative_captures = nullptr;
  // Contributions to the gradients of captures: for each of them [count][width] values, and their
  // offsets: elements from the beginning of the gradient, whose strides `gradient_strides` has,
  // contribution after contribution. Offsets are [count][width], too; of a separable contribution
  // only those of the first key, [width], followed by those of the first query, [count].
  void* contribution_values = nullptr;
  std::int64_t* contribution_offsets = nullptr;
  std::int64_t contribution_stride = 0;  // elements between contributions in both
  const std::int64_t* gradient_strides = nullptr;
};

struct BackwardKernelSpec {
  using Args = BackwardKernelArgs;

  TilePlan plan;
  ScoreForm score;
  ModFacts score_facts;
  // Output 0 of its graph is the gradient of the score, from score and grad; the contributions
  // name the others.
  ir::Joint derivative;
  ModFacts derivative_facts;
  bool masked = false;
  ir::Graph mask;
  ModFacts mask_facts;
  // NaN and infinities go exactly where the reference has them: P and dS of hidden pairs are -0,
  // which no product takes for a number, and no others are. Slower, for calls that met a NaN.
  bool exact_nonfinite = false;
  bool dropout = false;

  // Whether there is code for the keys of several chunks.
  [[nodiscard]] bool sums_chunks() const { return plan.sparse && !exact_nonfinite; }
  // Whether the derivative is evaluated; else the gradient of a score goes through as it is.
  [[nodiscard]] bool derives() const {
    return score.kind == ScoreForm::Kind::general || !derivative.contributions.empty();
  }
  bool operator==(const BackwardKernelSpec&) const = default;
};

base::Key key(const BackwardKernelSpec& spec);

}  // namespace treadle::plan
