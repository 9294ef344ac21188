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
#include "ir/graph.h"
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
};

using SlopeKernel = void(const SlopeArgs*);

struct SlopeSpec {
  plan::ForwardPlan plan;
  plan::ScoreForm score;
  plan::ModFacts score_facts;
  ir::Graph derivative;  // of a general score mod: output 0, from score and grad
  plan::ModFacts derivative_facts;
  bool masked = false;
  ir::Graph mask;
  plan::ModFacts mask_facts;
};

base::Hash key(const SlopeSpec& spec);
Module emit_slopes(const SlopeSpec& spec);

}  // namespace treadle::emit
