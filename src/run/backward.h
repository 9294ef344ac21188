// Backward: gradients of queries, keys, values and captures, on all threads.
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

// The gradient of a capture. Each of its contributions adds numbers at places that the score mod
// computes.
struct CapturedSum {
  std::vector<std::size_t> contributions;  // of the kernels', in order
  std::int64_t count = 0;
  void* sum = nullptr;  // [count] of the compute type, zeros at first
  // One index of every contribution, the same one, is the key (the head, the batch): then different
  // chunks of keys (key heads, batches) never add at the same place.
  bool by_key = false, by_head = false, by_batch = false;
};

struct BackwardProblem {
  ConstView q, k, v, out, dout;  // last stride 1
  ConstView lse;                 // [B, Hq, Sq] of the compute type
  std::optional<ConstView> dlse;
  View dq, dk, dv;  // shapes and types of q, k, v; last stride 1
  double scale = 1;
  const layout::Layout* layout = nullptr;
  std::vector<std::int64_t> score_words, mask_words, derivative_words;
  std::vector<CapturedSum> captured;
  std::vector<std::int64_t> gradient_strides;  // in elements, contribution after contribution
};

struct BackwardDone {
  std::optional<Poisoned> poisoned;
  // Something is not a number: whether it should be is not told apart here.
  bool not_a_number = false;
};

BackwardDone backward(BackwardKernels& kernels, const BackwardProblem& problem, Executor& executor,
                      Scratch& scratch);

}  // namespace treadle::run
