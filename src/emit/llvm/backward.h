// The backward kernel of a tile: weights and slopes of its scores, and its part of dQ.
//
//   P = 2^(s - lse)      dS = P * (dP - delta) through the derivative of the score mod      dQ^T +=
//   K^T dS^T
//
// P and dS are left for the sums over queries (emit/llvm/reduce.h) that make dV and dK.
#pragma once

#include "base/hash.h"
#include "emit/llvm/module.h"
#include "emit/llvm/tile_args.h"
#include "ir/joint.h"
#include "plan/forward.h"
#include "plan/mod_facts.h"
#include "plan/score_form.h"

namespace treadle::emit {

struct SlopeArgs {
  TileArgs tile;
  const void* gradients = nullptr;  // [value_dim][width]: dO^T
  const void* power = nullptr;      // [width]: lse in powers of two; inf where nothing was seen
  const void* delta = nullptr;      // [width]: rowsum(dO * O) - dlse
  void* weights = nullptr;          // [count][width]: P
  void* slopes = nullptr;           // [count][width]: dS, not yet scaled
  void* dq = nullptr;               // [dim][width], added to; not yet scaled
  const std::int64_t* derivative_words = nullptr;
  // What captures get: for each contribution [count][width] numbers, and where they go: elements
  // from the beginning of the gradient, whose strides `gradient_strides` has, contribution after
  // contribution. Places are [count][width], too; of a separable contribution only those of the
  // first key, [width], followed by those of the first query, [count].
  void* amounts = nullptr;
  std::int64_t* places = nullptr;
  std::int64_t apart = 0;  // elements between contributions in both
  const std::int64_t* gradient_strides = nullptr;
};

using SlopeKernel = void(const SlopeArgs*);

struct SlopeSpec {
  plan::ForwardPlan plan;
  plan::ScoreForm score;
  plan::ModFacts score_facts;
  // Output 0 is the slope of the score, from score and grad; the contributions name the others.
  ir::Graph derivative;
  std::vector<ir::Contribution> contributions;
  plan::ModFacts derivative_facts;
  bool masked = false;
  ir::Graph mask;
  plan::ModFacts mask_facts;
};

// Whether the place of a pair is a number of its query plus a number of its key: bias[h, q, kv],
// slopes[h], table[q - kv], but not table[bucket[q - kv]].
bool is_separable(const ir::Graph& derivative, const ir::Contribution& contribution);

// Whether the derivative is evaluated; else the slope of a score goes through as it is.
bool derives(const SlopeSpec& spec);

base::Hash key(const SlopeSpec& spec);
Module emit_slopes(const SlopeSpec& spec);

}  // namespace treadle::emit
