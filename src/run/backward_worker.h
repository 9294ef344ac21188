// One thread's part of a backward call: a task owns dK and dV of a chunk of keys of one key head,
// and hands its part of dQ over.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "run/backward.h"
#include "run/hand_over.h"
#include "run/row_numbers.h"

namespace treadle::run {

struct BackwardTask {
  std::int64_t key_batch = 0, key_head = 0, chunk = 0;
  std::int64_t number = 0;  // tasks add to captures in this order
};

// What all threads of a call share.
template <class F>
struct BackwardShared {
  BackwardKernels& kernels;
  const BackwardProblem& problem;
  std::int64_t chunk = 1024;
  int tiles_per_group = 4;
  HandOver<F>& dq;
  RowNumbers<F> rows;
  // By capture: where tasks hand over what they add, in their order; null where no two tasks at
  // work at the same time add at one place, and they add to the sum itself.
  std::vector<std::unique_ptr<HandOver<F>>> captured;
  std::atomic<std::int64_t> poisoned{
      -1};  // the first (batch, head, tile), counted through; -1: none
  std::atomic<bool> not_a_number{false};
};

template <class F>
void run_task(BackwardShared<F>& shared, const BackwardTask& task, Workspace& workspace);

}  // namespace treadle::run
