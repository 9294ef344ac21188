// A backward call: terms of every query first, then groups of tasks handed to threads.
#include "run/backward.h"

#include "base/parallel.h"
#include "run/backward_worker.h"

namespace treadle::run {
namespace {

template <class F>
BackwardDone run(const BackwardKernels& kernels, const BackwardProblem& problem,
                 const plan::BackwardSchedule& schedule, Executor& executor, Scratch& scratch) {
  const layout::Layout& layout = problem.layout;
  const std::int64_t width = kernels.plan.width();
  const std::int64_t parts = (layout.tiles().height() + width - 1) / width;
  const std::int64_t places =
      layout.extent().batch * layout.extent().heads * layout.tiles().count() * parts;
  const std::int64_t rows = problem.q.size(0) * problem.q.size(1) * problem.q.size(2);
  const std::int64_t tile = width * kernels.plan.dim;
  const Scratch::Lease room = scratch.take();
  F* sums = nullptr;
  RowTerms<F> terms;
  room->carve([&](Carver& carver) {
    terms = {carver.take<F>(rows), carver.take<F>(rows)};
    sums = carver.take<F>(places * tile);
  });
  find_terms(terms, kernels, problem, executor, scratch);
  OrderedSums<F> dq(sums, places, tile, schedule.chunks);
  BackwardShared<F> shared{.kernels = kernels,
                           .problem = problem,
                           .schedule = schedule,
                           .dq = dq,
                           .terms = terms,
                           .captured = {},
                           .poisoned = FirstPoisoned(layout)};
  for (const CapturedSum& captured : problem.captured) {
    shared.captured.push_back(
        captured.reach.by_key ? nullptr
                              : std::make_unique<OrderedSums<F>>(static_cast<F*>(captured.sum), 1,
                                                                 captured.count, schedule.tasks));
  }
  // Groups are begun in their order whatever the executor does, so that few parts come early.
  std::atomic<std::size_t> next{0};
  base::parallel_for(executor, static_cast<std::int64_t>(schedule.groups.size()),
                     [&](std::int64_t) {
                       const Scratch::Lease workspace = scratch.take();
                       for (const plan::BackwardTask& task : schedule.groups[next++])
                         run_task(shared, task, *workspace);
                     });
  return {.poisoned = shared.poisoned.found(), .nan = shared.nan};
}

}  // namespace

BackwardDone backward(const BackwardKernels& kernels, const BackwardProblem& problem,
                      const plan::BackwardSchedule& schedule, Executor& executor,
                      Scratch& scratch) {
  return kernels.plan.compute == DType::f64
             ? run<double>(kernels, problem, schedule, executor, scratch)
             : run<float>(kernels, problem, schedule, executor, scratch);
}

}  // namespace treadle::run
