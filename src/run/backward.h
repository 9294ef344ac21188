// Backward: gradients of queries, keys and values, on all threads.
#pragma once

#include <optional>
#include <vector>

#include "layout/layout.h"
#include "run/backward_kernels.h"
#include "run/forward.h"
#include "run/scratch.h"
#include "treadle/executor.h"
#include "treadle/view.h"

namespace treadle::run {

struct BackwardProblem {
  ConstView q, k, v, out, dout;  // last stride 1
  ConstView lse;                 // [B, Hq, Sq] of the compute type
  std::optional<ConstView> dlse;
  View dq, dk, dv;  // shapes and types of q, k, v; last stride 1
  double scale = 1;
  const layout::Layout* layout = nullptr;
  std::vector<std::int64_t> score_words, mask_words, derivative_words;
};

struct BackwardDone {
  std::optional<Poisoned> poisoned;
  // Something is not a number: whether it should be is not told apart here.
  bool not_a_number = false;
};

BackwardDone backward(BackwardKernels& kernels, const BackwardProblem& problem, Executor& executor,
                      Scratch& scratch);

}  // namespace treadle::run
