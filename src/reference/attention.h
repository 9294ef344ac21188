// The definition of attention, dense and plain. Every kernel is tested against it.
//
//   S[b,h,m,n] = mask(b,h,m,n) ? score_mod(scale * <Q[b,h,m,:], K[b,hk,n,:]>, b, h, m, n) : -inf
//   lse = ln sum_n exp S     max = max_n S     P = exp(S - lse)     O = sum_n P V
//   hk = h / (Hq / Hkv)
//
// With dropout, O and the gradients have f P for P, where f is 0 for dropped pairs and 1 / (1 - p) for
// others; lse and max do not.
//
// A row that sees nothing has O = 0 and lse = max = -inf; a NaN score that is seen makes its row
// NaN. Hidden pairs contribute exactly nothing. Computed in fp64 if q, k or v is f64 and in fp32
// otherwise; masks always in fp64. Shapes and bindings have been checked by the caller. What reads
// outside a buffer where it matters throws treadle::Error.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/compute_type.h"
#include "base/dropout.h"
#include "base/parallel.h"
#include "ir/joint.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle::reference {

// A graph and the memory of its slots, in the graph's order.
struct Bound {
  ir::Graph graph;
  std::vector<ConstView> memory;
};

struct Problem {
  ConstView q, k, v;  // [B, Hq, Sq, D], [B or 1, Hkv, Skv, D], [B or 1, Hkv, Skv, Dv]
  double scale = 1;
  Bound score_mod, mask;
  std::span<const double> sinks = {};          // [Hq], or none: lse = ln (sum_n exp S + exp sink)
  const base::DropoutRule* dropout = nullptr;  // null: nothing is dropped
  std::int64_t first_b = 0, first_q = 0, first_kv = 0;  // what mods see of the first ones
};

struct Forward {
  Tensor out;       // [B, Hq, Sq, Dv] in q's type
  Tensor lse, max;  // [B, Hq, Sq] in the type of the computation
};

Forward forward(const Problem& problem, const base::Workers& workers);

// What the backward pass gets besides the problem.
struct Incoming {
  ConstView out, lse, dout;
  std::optional<ConstView> dlse;
};

// The derivative of the score mod, its memory, and the buffers whose gradients are asked for.
struct Derivative {
  ir::Joint joint;
  std::vector<ConstView> memory;
  std::vector<ir::Slot> wanted;
  std::vector<ConstView> wanted_memory;
};

struct Backward {
  Tensor dq, dk, dv;             // in the types and shapes of q, k, v
  std::vector<Tensor> captured;  // by Derivative::wanted
};

Backward backward(const Problem& problem, const Incoming& incoming, const Derivative& derivative,
                  const base::Workers& workers);

using base::compute_type;

// Bytes of working memory that one thread needs at most.
std::int64_t scratch_bytes(DType compute, std::int64_t keys, std::int64_t dim,
                           std::int64_t value_dim);

}  // namespace treadle::reference
