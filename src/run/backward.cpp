#include "run/backward.h"

#include <algorithm>

#include "base/parallel.h"
#include "run/backward_worker.h"

namespace treadle::run {
namespace {

template <class F>
BackwardDone run(BackwardKernels& kernels, const BackwardProblem& problem, Executor& executor,
                 Scratch& scratch) {
  const layout::Layout& layout = *problem.layout;
  const std::int64_t keys = problem.k.size(2);
  const std::int64_t chunk = plan::chunk_length(keys);
  const std::int64_t chunks = (keys + chunk - 1) / chunk;
  const std::int64_t width = kernels.plan().width();
  const std::int64_t parts = (layout.tiles().height() + width - 1) / width;
  const std::int64_t places =
      layout.extent().batch * layout.extent().heads * layout.tiles().count() * parts;
  HandOver<F> dq(places, width * kernels.spec().dim, chunks);
  BackwardShared<F> shared{
      .kernels = kernels, .problem = problem, .chunk = chunk, .tiles_per_group = 4, .dq = dq};

  // Chunk by chunk, so that few parts of dQ come early. Tasks are begun in this order whatever the
  // executor does.
  std::vector<BackwardTask> tasks;
  for (std::int64_t c = 0; c < chunks; ++c)
    for (std::int64_t b = 0; b < problem.k.size(0); ++b)
      for (std::int64_t h = 0; h < problem.k.size(1); ++h) tasks.push_back({b, h, c});
  std::atomic<std::size_t> next{0};
  base::parallel_for(executor, static_cast<std::int64_t>(tasks.size()), [&](std::int64_t) {
    const Scratch::Lease workspace = scratch.take();
    run_task(shared, tasks[next++], *workspace);
  });

  BackwardDone done{.poisoned = std::nullopt, .not_a_number = shared.not_a_number};
  if (const std::int64_t where = shared.poisoned; where >= 0) {
    const std::int64_t tiles = layout.tiles().count();
    const std::int64_t heads = layout.extent().heads;
    done.poisoned = Poisoned{where / tiles / heads, where / tiles % heads, where % tiles};
  }
  return done;
}

}  // namespace

BackwardDone backward(BackwardKernels& kernels, const BackwardProblem& problem, Executor& executor,
                      Scratch& scratch) {
  return kernels.spec().compute == DType::f64 ? run<double>(kernels, problem, executor, scratch)
                                              : run<float>(kernels, problem, executor, scratch);
}

}  // namespace treadle::run
