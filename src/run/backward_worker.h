// One thread's part of a backward call: a task owns dK and dV of a chunk of keys of one key head,
// and delivers its part of dQ; or those of a residue class, and its dQ is complete.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "run/backward.h"
#include "run/ordered_sums.h"
#include "run/row_terms.h"

namespace treadle::run {

// What all threads of a pass share.
template <class F>
struct BackwardShared {
  const BackwardKernels& kernels;
  const BackwardPass& pass;
  bool adds;  // results hold what passes before found
  const BackwardProblem& problem;
  const plan::BackwardSchedule& schedule;
  bool exact;  // infinities and NaN reach only what sees them
  OrderedSums<F> dq;
  RowTerms<F> terms;
  // By capture: where tasks deliver what they add, in their order; null where no two tasks at work
  // at the same time add to one element, and they add to the sum itself.
  std::vector<std::unique_ptr<OrderedSums<F>>> captured;
  FirstPoisoned poisoned;
  const base::Workers& workers;
  std::atomic<bool> nan{false};

  BackwardShared(const BackwardPass& one, std::size_t number, const BackwardProblem& of,
                 Nonfinite nonfinite, const typename OrderedSums<F>::Parts& dq_parts,
                 const RowTerms<F>& row_terms, const base::Workers& on)
      : kernels(one.kernels),
        pass(one),
        adds(number > 0),
        problem(of),
        schedule(one.schedule),
        exact(nonfinite == Nonfinite::exact),
        dq(dq_parts),
        terms(row_terms),
        poisoned(one.layout, number),
        workers(on) {}

  // Some part will never be delivered: nobody waits for it, and results do not matter.
  void give_up() {
    dq.give_up();
    for (const auto& sum : captured)
      if (sum) sum->give_up();
  }
};

// `next` is the task that this thread will probably run next, or null.
template <class F>
void run_task(BackwardShared<F>& shared, const plan::BackwardTask& task,
              const plan::BackwardTask* next, Workspace& workspace);

// What a task of the call needs at most.
template <class F>
WorkspaceNeed workspace_need(const BackwardShared<F>& shared);

}  // namespace treadle::run
