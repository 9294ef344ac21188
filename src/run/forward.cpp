// A forward call's tasks handed to threads, and room for what cut tasks leave to one another.
#include "run/forward.h"

#include <algorithm>

#include "base/parallel.h"
#include "run/forward_worker.h"

namespace treadle::run {

std::optional<Poisoned> forward(const ForwardKernels& kernels, const ForwardProblem& problem,
                                const plan::Schedule& schedule, const base::Workers& workers,
                                Scratch& scratch) {
  const plan::TilePlan& plan = kernels.widest().plan;
  ForwardShared shared{
      .kernels = kernels,
      .problem = problem,
      .schedule = schedule,
      .vectors = plan::kernel_vectors(problem.layout.tiles(), plan.target.lanes(plan.compute)),
      .pieces_left = std::vector<std::atomic<std::int64_t>>(schedule.cuts.size()),
      .poisoned = FirstPoisoned(problem.layout),
      .workers = workers};
  shared.partial_offsets.reserve(schedule.cuts.size());
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < schedule.cuts.size(); ++i) {
    const plan::Cut& cut = schedule.cuts[i];
    shared.pieces_left[i] = cut.pieces;
    shared.partial_offsets.push_back(bytes);
    bytes += static_cast<std::size_t>(cut.chunks.count() * cut.count) * state_bytes(plan);
  }
  std::optional<Scratch::Share> partial;
  if (bytes > 0) {
    partial.emplace(scratch, 1, WorkspaceNeed{.bytes = bytes});
    shared.partial = partial->front().memory();
  }
  const auto tasks = static_cast<std::int64_t>(schedule.tasks.size());
  Scratch::Share share(scratch, std::min<std::int64_t>(tasks, workers.threads()),
                       workspace_need(shared));
  if (problem.keys.needs_copy(plan.keys.element)) {
    kernels.load_k.prepare();
    kernels.load_v.prepare();
  }
  // From here on nothing is allocated: results are written.
  base::parallel_for(workers, tasks, [&](std::int64_t i) {
    const Scratch::Lease workspace = share.lend();
    run_task(shared, schedule.tasks[static_cast<std::size_t>(i)], *workspace);
  });
  return shared.poisoned.found();
}

}  // namespace treadle::run
