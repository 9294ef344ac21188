// Forward: a layout's tiles against their runs of keys, on all threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/layout.h"
#include "run/forward_kernels.h"
#include "run/scratch.h"
#include "treadle/executor.h"
#include "treadle/view.h"

namespace treadle::run {

struct ForwardProblem {
  ConstView q, k,
      v;     // [B, Hq, Sq, D], [B or 1, Hkv, Skv, D], [B or 1, Hkv, Skv, Dv]; last stride 1
  View out;  // [B, Hq, Sq, Dv] of q's type, last stride 1
  std::optional<View> lse, max;  // [B, Hq, Sq] of the compute type
  double scale = 1;
  const layout::Layout* layout = nullptr;
  std::vector<std::int64_t> score_words, mask_words;  // captures, as kernels get them
};

// Where a tile met poison: it read outside a captured buffer, or divided by zero, where it
// mattered. What was written is of no use.
struct Poisoned {
  std::int64_t b = 0, h = 0, tile = 0;
};

// The first poisoned tile, if there is one.
std::optional<Poisoned> forward(ForwardKernels& kernels, const ForwardProblem& problem,
                                Executor& executor, Scratch& scratch);

}  // namespace treadle::run
