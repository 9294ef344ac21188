// lse2 and delta of all queries, some rows at a time.
#include "run/row_terms.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "base/parallel.h"
#include "run/rows.h"

namespace treadle::run {
namespace {

constexpr std::int64_t rows_at_once = 32;
constexpr std::int64_t rows_of_task = 512;

template <class F>
class TermFinder {
 public:
  TermFinder(const BackwardKernels& kernels, const BackwardProblem& problem, Workspace& work)
      : kernels_(kernels), problem_(problem), value_dim_(kernels.plan.value_dim) {
    Carver carver(work.memory());
    out_ = carver.take<F>(rows_at_once * value_dim_);
    gradients_ = carver.take<F>(rows_at_once * value_dim_);
    work.check(carver);
  }

  static std::int64_t bytes(const plan::TilePlan& plan) {
    return 2 * measured([&](Carver& carver) { carver.take<F>(rows_at_once * plan.value_dim); });
  }

  // Those from `first` on of a head; `to` holds all of the head.
  void find(std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t count,
            const RowTerms<F>& to) {
    if (!problem_.delta) {
      load(problem_.out, b, h, first, count, out_);
      load(problem_.dout, b, h, first, count, gradients_);
    }
    const auto value = [&](const ConstView& view, std::int64_t i) {
      const std::int64_t offset = b * view.stride(0) + h * view.stride(1) + i * view.stride(2);
      return static_cast<const F*>(view.data())[offset];
    };
    constexpr F infinity = std::numeric_limits<F>::infinity();
    for (std::int64_t i = 0; i < count; ++i) {
      const F lse = value(problem_.lse, first + i);
      to.lse2[first + i] = lse == -infinity
                               ? infinity
                               : static_cast<F>(static_cast<double>(lse) * std::numbers::log2e);
      if (problem_.delta) {
        to.delta[first + i] = value(*problem_.delta, first + i);
        continue;
      }
      F delta = row_product(gradients_ + i * value_dim_, out_ + i * value_dim_, value_dim_);
      if (problem_.dlse) delta -= value(*problem_.dlse, first + i);
      to.delta[first + i] = delta;
    }
  }

 private:
  void load(const ConstView& view, std::int64_t b, std::int64_t h, std::int64_t first,
            std::int64_t count, F* to) {
    kernels_.load_out({.source = rows_of(view, b, h) + first * row_bytes(view),
                       .source_stride = row_bytes(view),
                       .source_index = nullptr,
                       .target = to,
                       .target_stride = value_dim_ * static_cast<std::int64_t>(sizeof(F)),
                       .target_index = nullptr,
                       .count = count});
  }

  const BackwardKernels& kernels_;
  const BackwardProblem& problem_;
  std::int64_t value_dim_;
  F *out_ = nullptr, *gradients_ = nullptr;
};

}  // namespace

template <class F>
F row_product(const F* a, const F* b, std::int64_t count) {
  F chains[8] = {};
  const std::int64_t whole = count / 8 * 8;
  for (std::int64_t i = 0; i < whole; i += 8)
    for (std::int64_t j = 0; j < 8; ++j) chains[j] += a[i + j] * b[i + j];
  for (std::int64_t i = whole; i < count; ++i) chains[i - whole] += a[i] * b[i];
  for (std::int64_t step = 4; step > 0; step /= 2)
    for (std::int64_t j = 0; j < step; ++j) chains[j] += chains[j + step];
  return chains[0];
}

template <class F>
void find_terms(const RowTerms<F>& terms, const BackwardKernels& kernels,
                const BackwardProblem& problem, const base::Workers& workers,
                Scratch::Share& share) {
  const std::int64_t heads = problem.q.size(1);
  const std::int64_t queries = problem.q.size(2);
  const std::int64_t tasks = (queries + rows_of_task - 1) / rows_of_task;
  base::parallel_for(workers, problem.q.size(0) * heads * tasks, [&](std::int64_t number) {
    const Scratch::Lease workspace = share.lend();
    TermFinder<F> finder(kernels, problem, *workspace);
    const std::int64_t head = number / tasks;  // of all batches
    const std::int64_t begin = number % tasks * rows_of_task;
    const std::int64_t end = std::min(begin + rows_of_task, queries);
    const RowTerms<F> to{terms.lse2 + head * queries, terms.delta + head * queries};
    for (std::int64_t first = begin; first < end; first += rows_at_once) {
      finder.find(head / heads, head % heads, first, std::min(rows_at_once, end - first), to);
    }
  });
}

template <class F>
std::int64_t term_scratch(const plan::TilePlan& plan) {
  return TermFinder<F>::bytes(plan);
}

template float row_product(const float*, const float*, std::int64_t);
template double row_product(const double*, const double*, std::int64_t);
template std::int64_t term_scratch<float>(const plan::TilePlan&);
template std::int64_t term_scratch<double>(const plan::TilePlan&);
template void find_terms(const RowTerms<float>&, const BackwardKernels&, const BackwardProblem&,
                         const base::Workers&, Scratch::Share&);
template void find_terms(const RowTerms<double>&, const BackwardKernels&, const BackwardProblem&,
                         const base::Workers&, Scratch::Share&);

}  // namespace treadle::run
