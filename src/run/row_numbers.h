// The two numbers that the backward needs of every query, found before its tasks begin.
#pragma once

#include "run/backward.h"

namespace treadle::run {

// By batch, head and query, one after the other.
template <class F>
struct RowNumbers {
  F* power = nullptr;  // lse in powers of two; inf where nothing was seen
  F* delta = nullptr;  // rowsum(dO * O) - dlse
};

template <class F>
void find_rows(const RowNumbers<F>& rows, BackwardKernels& kernels, const BackwardProblem& problem,
               Executor& executor, Scratch& scratch);

}  // namespace treadle::run
