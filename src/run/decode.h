// Decode: a few queries against many keys. Rows of all heads of a key head look at keys together,
// which are read in place, in their own type, and lie in the lanes (plan/decode_kernel.h).
//
//   if (plan::decodes(target, compute, layout, group))
//     done = run::decode(kernels, layout, captures, problem, workers, scratch);
//
// A row has the bits that the forward (run/forward.h) gives it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "layout/layout.h"
#include "plan/decode_kernel.h"
#include "run/forward.h"
#include "run/lazy_kernel.h"
#include "run/rows.h"
#include "run/scratch.h"

namespace treadle::run {

struct DecodeKernels {
  plan::DecodeKernelSpec spec;  // of both, but for `masked`
  double query_factor = 1;      // what queries are multiplied with besides the scale
  std::int64_t frame = 0;       // bytes of DecodeKernelArgs::frame
  LazyKernel<plan::DecodeKernelArgs> full, masked;
  CopyKernel load_q, store_out;  // into the compute type, and out of it
};

// Adds what has to be compiled before a call with this layout runs.
void needed(const DecodeKernels& kernels, const layout::Layout& layout, Missing& missing);

// Adds all of them. `may_hide`: some pairs may be hidden.
void all_of(const DecodeKernels& kernels, bool may_hide, Missing& missing);

// Descriptors of captures (plan/capture_descriptors.h), of the exchanged graphs.
struct DecodeCaptures {
  std::vector<std::int64_t> score, mask;
};

// False if a row holds a NaN whose origin has to be looked into, which the forward does; then
// results may be incomplete.
bool decode(const DecodeKernels& kernels, const layout::Layout& layout,
            const DecodeCaptures& captures, const ForwardProblem& problem,
            const base::Workers& workers, Scratch& scratch);

}  // namespace treadle::run
