// Simplify: the same function with less work.
//
//   "score * 1.0 + slopes[h] * float(kv - kv)"  ->  "score + slopes[h] * 0.0"
//
// The promise: at every point the value has the same bits (all NaNs are one), the poison is the
// same, and so are the derivatives; in fp32 and in fp64. So x * 0.0 stays (NaN, -0) and so does
// x + 0.0 (x may be -0), a constant is folded only if both precisions agree on it, and nothing that
// may be poisoned is dropped.
#pragma once

#include "ir/graph.h"

namespace treadle::passes {

ir::Graph simplify(const ir::Graph& graph);

}  // namespace treadle::passes
