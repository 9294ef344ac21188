// A forward call's tasks handed to threads, and room for what cut tasks leave to one another.
#include "run/forward.h"

#include "base/parallel.h"
#include "run/forward_worker.h"

namespace treadle::run {

std::optional<Poisoned> forward(const ForwardKernels& kernels, const ForwardProblem& problem,
                                const plan::Schedule& schedule, Executor& executor,
                                Scratch& scratch) {
  const plan::TilePlan& plan = kernels.widest().plan;
  ForwardShared shared{
      .kernels = kernels,
      .problem = problem,
      .schedule = schedule,
      .vectors = plan::kernel_vectors(problem.layout.tiles(), plan.target.lanes(plan.compute)),
      .pieces_left = std::vector<std::atomic<std::int64_t>>(schedule.cuts.size()),
      .poisoned = FirstPoisoned(problem.layout)};
  const Scratch::Lease partial = scratch.take();
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < schedule.cuts.size(); ++i) {
    const plan::Cut& cut = schedule.cuts[i];
    shared.pieces_left[i] = cut.pieces;
    shared.partial_offsets.push_back(bytes);
    bytes +=
        static_cast<std::size_t>((cut.chunk_end - cut.chunk_begin) * cut.count) * state_bytes(plan);
  }
  if (bytes > 0) shared.partial = partial->room(bytes);

  base::parallel_for(executor, static_cast<std::int64_t>(schedule.tasks.size()),
                     [&](std::int64_t i) {
                       const Scratch::Lease workspace = scratch.take();
                       run_task(shared, schedule.tasks[static_cast<std::size_t>(i)], *workspace);
                     });
  return shared.poisoned.found();
}

}  // namespace treadle::run
