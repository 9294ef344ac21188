#include "run/backward.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/parallel.h"
#include "run/backward_worker.h"

namespace treadle::run {
namespace {

// Chunk by chunk. Tasks that may add at the same place of a capture are in one group, which one
// thread runs in order.
std::vector<std::vector<BackwardTask>> tasks_of(const BackwardProblem& problem,
                                                std::int64_t chunks) {
  bool heads_apart = true, batches_apart = true;
  for (const CapturedSum& captured : problem.captured) {
    if (!captured.by_key) continue;
    heads_apart = heads_apart && captured.by_head;
    batches_apart = batches_apart && captured.by_batch;
  }
  std::vector<std::vector<BackwardTask>> groups;
  std::int64_t number = 0;
  for (std::int64_t c = 0; c < chunks; ++c) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<BackwardTask>> of_chunk;
    for (std::int64_t b = 0; b < problem.k.size(0); ++b) {
      for (std::int64_t h = 0; h < problem.k.size(1); ++h)
        of_chunk[{batches_apart ? b : 0, heads_apart ? h : 0}].push_back({b, h, c, number++});
    }
    for (auto& [apart, tasks] : of_chunk) groups.push_back(std::move(tasks));
  }
  return groups;
}

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
  const std::int64_t rows = problem.q.size(0) * problem.q.size(1) * problem.q.size(2);
  const std::int64_t tile = width * kernels.spec().dim;
  const Scratch::Lease room = scratch.take();
  F* sums = nullptr;
  RowNumbers<F> numbers;
  const auto carve = [&](Carver carver) {
    numbers = {carver.take<F>(rows), carver.take<F>(rows)};
    sums = carver.take<F>(places * tile);
    return carver.used();
  };
  carve(Carver(room->room(carve(Carver()))));
  find_rows(numbers, kernels, problem, executor, scratch);
  HandOver<F> dq(sums, places, tile, chunks);
  BackwardShared<F> shared{.kernels = kernels,
                           .problem = problem,
                           .chunk = chunk,
                           .tiles_per_group = plan::tiles_per_backward_group(kernels.plan()),
                           .dq = dq,
                           .rows = numbers};

  const std::vector<std::vector<BackwardTask>> tasks = tasks_of(problem, chunks);
  std::int64_t number = 0;
  for (const auto& group : tasks) number += static_cast<std::int64_t>(group.size());
  for (const CapturedSum& captured : problem.captured) {
    shared.captured.push_back(captured.by_key
                                  ? nullptr
                                  : std::make_unique<HandOver<F>>(static_cast<F*>(captured.sum), 1,
                                                                  captured.count, number));
  }
  // Groups are begun in their order whatever the executor does, so that few parts come early.
  std::atomic<std::size_t> next{0};
  base::parallel_for(executor, static_cast<std::int64_t>(tasks.size()), [&](std::int64_t) {
    const Scratch::Lease workspace = scratch.take();
    for (const BackwardTask& task : tasks[next++]) run_task(shared, task, *workspace);
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
