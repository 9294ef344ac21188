// A backward call: terms of every query first, then groups of tasks handed to threads.
#include "run/backward.h"

#include <algorithm>

#include "base/parallel.h"
#include "run/backward_worker.h"

namespace treadle::run {
namespace {

// On all threads: the gradient of a bias of all pairs is larger than anything else in a call.
template <class F>
void clear(const CapturedSum& captured, const base::Workers& workers) {
  constexpr std::int64_t piece = std::int64_t{1} << 18;
  base::parallel_for(workers, (captured.count + piece - 1) / piece, [&](std::int64_t i) {
    std::fill_n(static_cast<F*>(captured.sum) + i * piece,
                std::min(piece, captured.count - i * piece), F{0});
  });
}

template <class F>
BackwardDone run(const BackwardKernels& kernels, const BackwardProblem& problem,
                 const plan::BackwardSchedule& schedule, Nonfinite nonfinite,
                 const base::Workers& workers, Scratch& scratch) {
  const layout::Layout& layout = problem.layout;
  const std::int64_t width = kernels.plan.width();
  const std::int64_t parts = (layout.tiles().height() + width - 1) / width;
  const std::int64_t places =
      layout.extent().batch * layout.extent().heads * layout.tiles().count() * parts;
  const std::int64_t rows = problem.q.size(0) * problem.q.size(1) * problem.q.size(2);
  const std::int64_t tile = width * kernels.plan.dim;
  F* sums = nullptr;
  RowTerms<F> terms;
  const auto carve = [&](Carver& carver) {
    terms = {carver.take<F>(rows), carver.take<F>(rows)};
    sums = carver.take<F>(places * tile);
  };
  const Scratch::Share room(scratch, 1, {.bytes = static_cast<std::size_t>(measured(carve))});
  Carver carver(room.front().memory());
  carve(carver);
  OrderedSums<F> dq(sums, places, tile, schedule.chunks);
  BackwardShared<F> shared{.kernels = kernels,
                           .problem = problem,
                           .schedule = schedule,
                           .exact = nonfinite == Nonfinite::exact,
                           .dq = dq,
                           .terms = terms,
                           .captured = {},
                           .poisoned = FirstPoisoned(layout),
                           .workers = workers};
  for (const CapturedSum& captured : problem.captured) {
    shared.captured.push_back(
        captured.reach.by_key ? nullptr
                              : std::make_unique<OrderedSums<F>>(static_cast<F*>(captured.sum), 1,
                                                                 captured.count, schedule.tasks));
  }
  const auto groups = static_cast<std::int64_t>(schedule.groups.size());
  WorkspaceNeed need = workspace_need(shared);
  need.bytes = std::max(need.bytes, static_cast<std::size_t>(term_scratch<F>(kernels.plan)));
  Scratch::Share share(scratch, std::min<std::int64_t>(groups, workers.threads()), need);
  if (problem.keys.needs_copy(kernels.plan.keys.element)) {
    kernels.load_k.prepare();
    kernels.load_v.prepare();
  }
  find_terms(terms, kernels, problem, workers, share);
  // From here on nothing is allocated that the call cannot do without: results are written.
  for (const CapturedSum& captured : problem.captured)
    if (captured.clear) clear<F>(captured, workers);
  // Groups begin in their order: few parts come early, and who has no memory for one may wait.
  base::parallel_for(workers, groups, [&](std::int64_t i) {
    try {
      const Scratch::Lease workspace = share.lend();
      for (const plan::BackwardTask& task : schedule.groups[static_cast<std::size_t>(i)])
        run_task(shared, task, *workspace);
    } catch (...) {
      shared.give_up();
      throw;
    }
  });
  return {.poisoned = shared.poisoned.found(), .nan = shared.nan};
}

}  // namespace

BackwardDone backward(const BackwardKernels& kernels, const BackwardProblem& problem,
                      const plan::BackwardSchedule& schedule, Nonfinite nonfinite,
                      const base::Workers& workers, Scratch& scratch) {
  return kernels.plan.compute == DType::f64
             ? run<double>(kernels, problem, schedule, nonfinite, workers, scratch)
             : run<float>(kernels, problem, schedule, nonfinite, workers, scratch);
}

}  // namespace treadle::run
