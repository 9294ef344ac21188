// Dropout of attention weights.
//
//   const Dropout dropout{.probability = 0.1, .seed = 17};
//   Forward y = causal.forward({q, k, v}, {.lse = true, .dropout = dropout});
//   Backward g = causal.backward({q, k, v}, {y.out, y.lse}, dout, {}, {.dropout = dropout});
//   bool kept = keeps(dropout, 0, 3, 128, 64);                // of b, h, q and kv
//
//     out = sum_n P[n] / (1 - probability) V[n] over the kept keys n; lse and max are those without
//
// What is kept follows from seed, offset, b, h, q and kv alone, as mods see them: Philox 4x32 with ten
// rounds. So it is the same in forward and backward, for any number of threads, for any layout, and for
// a sequence alone or among others.
#pragma once

#include <cstdint>

#include "treadle/api.h"

namespace treadle {

// Which weights of a call become 0: an independent choice for each pair.
struct Dropout {
  // Of a weight to become 0, from 0 (no dropout) to 1. Decisions take it as a multiple of 2^-16.
  double probability = 0;
  std::uint64_t seed = 0, offset = 0;  // another of either: another, independent choice
};

// Whether the weight of a pair is kept. b, h, q and kv are those of a mod. Throws treadle::Error for a
// probability that is none.
TREADLE_API bool keeps(const Dropout& dropout, std::int64_t b, std::int64_t h, std::int64_t q,
                       std::int64_t kv);

}  // namespace treadle
