// Attention over keys in parts: combines the results of calls that each saw some of the keys.
//
//   Attention attend = compile({});
//   Forward a = attend.forward({q, near_k, near_v}, {.lse = true});
//   Forward b = attend.forward({q, far_k, far_v}, {.lse = true});
//   Forward all = merge_states({{a.out, a.lse}, {b.out, b.lse}});
//
//     lse = ln sum_i exp lse_i      out = sum_i exp(lse_i - lse) out_i
//
// For engines that split keys themselves. One call over all keys is faster and rounds once, so bits
// may differ. Parts must be computed without sinks. A row that sees nothing in a part (lse = -inf)
// takes nothing from it; one that sees nothing in any part has out = 0 and lse = -inf.
#pragma once

#include <memory>
#include <vector>

#include "treadle/api.h"
#include "treadle/attention.h"

namespace treadle {

// out [batch, heads, queries, value dim] of a float type, lse [batch, heads, queries] of f32 or f64;
// types and shapes are those of all parts.
TREADLE_API Forward merge_states(const std::vector<Saved>& parts,
                                 const std::shared_ptr<Executor>& executor = nullptr);

// Into memory of the caller's: results.out and, if given, results.lse; max must not be. It may be that
// of a part, but must not overlap a part otherwise.
TREADLE_API void merge_states_into(const ForwardViews& results, const std::vector<Saved>& parts,
                                   const std::shared_ptr<Executor>& executor = nullptr);

}  // namespace treadle
