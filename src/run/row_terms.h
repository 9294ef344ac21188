// The two terms that the backward needs of every query, found before its tasks begin.
#pragma once

#include "run/backward.h"

namespace treadle::run {

// By batch, head and query, contiguous.
template <class F>
struct RowTerms {
  F* lse2 = nullptr;   // lse in powers of two; inf where nothing was seen
  F* delta = nullptr;  // rowsum(dO * O) - dlse
};

// <a, b>, as delta takes it: in eight chains, whose order is fixed.
template <class F>
F row_product(const F* a, const F* b, std::int64_t count);

template <class F>
void find_terms(const RowTerms<F>& terms, const BackwardKernels& kernels,
                const BackwardProblem& problem, const base::Workers& workers,
                Scratch::Share& share);

// Bytes of a workspace that finding them takes.
template <class F>
std::int64_t term_scratch(const plan::TilePlan& plan);

}  // namespace treadle::run
