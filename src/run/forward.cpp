#include "run/forward.h"

#include <algorithm>

#include "base/parallel.h"
#include "plan/schedule.h"
#include "run/forward_worker.h"
#include "run/key_blocks.h"

namespace treadle::run {
namespace {

// Which kernel takes tiles of 1, 2, 3 vectors' worth of queries. A size that few tiles have is not
// worth a kernel of its own: the next larger one pads them.
std::vector<int> kernel_vectors(const layout::Tiles& tiles, int lanes) {
  std::vector<std::int64_t> number(plan::most_vectors);
  for (std::int64_t t = 0; t < tiles.count(); ++t) {
    const std::int64_t vectors = (tiles.size(t) + lanes - 1) / lanes;
    ++number[static_cast<std::size_t>(std::min<std::int64_t>(vectors, plan::most_vectors) - 1)];
  }
  std::vector<int> result(plan::most_vectors, plan::most_vectors);
  int larger = 0;
  for (int vectors = plan::most_vectors; vectors >= 1; --vectors) {
    const auto at = static_cast<std::size_t>(vectors - 1);
    if (number[at] * 10 >= tiles.count() || (larger == 0 && number[at] > 0)) larger = vectors;
    result[at] = larger == 0 ? vectors : larger;
  }
  return result;
}

}  // namespace

std::optional<Poisoned> forward(ForwardKernels& kernels, const ForwardProblem& problem,
                                Executor& executor, Scratch& scratch) {
  const ForwardSpec& spec = kernels.spec();
  const layout::Layout& layout = *problem.layout;
  const int lanes = spec.target.lanes(spec.compute);
  const std::int64_t chunk = plan::chunk_length(problem.k.size(2));
  const bool copies = needs_copy(problem.k, spec.compute) || needs_copy(problem.v, spec.compute);
  const std::int64_t most_queries = kernels.plan(plan::most_vectors).width();
  const plan::Schedule schedule = plan::schedule(
      layout, {.key_heads = problem.k.size(1),
               .most_queries = most_queries,
               .tiles_per_group = plan::tiles_per_group(kernels.plan(plan::most_vectors), copies),
               .threads = executor.threads(),
               .chunk = chunk,
               .weights = plan::tile_weights(spec.target, spec.compute)});

  ForwardShared shared{.kernels = kernels,
                       .problem = problem,
                       .schedule = schedule,
                       .chunk = chunk,
                       .most_queries = most_queries,
                       .vectors = kernel_vectors(layout.tiles(), lanes),
                       .pieces_left = std::vector<std::atomic<std::int64_t>>(schedule.cuts.size())};
  const Scratch::Lease partial = scratch.take();
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < schedule.cuts.size(); ++i) {
    const plan::Cut& cut = schedule.cuts[i];
    shared.pieces_left[i] = cut.pieces;
    shared.partial_offsets.push_back(bytes);
    bytes += static_cast<std::size_t>((cut.chunk_end - cut.chunk_begin) * cut.count) *
             state_bytes(kernels, plan::most_vectors);
  }
  if (bytes > 0) shared.partial = partial->room(bytes);

  base::parallel_for(executor, static_cast<std::int64_t>(schedule.tasks.size()),
                     [&](std::int64_t i) {
                       const Scratch::Lease workspace = scratch.take();
                       run_task(shared, schedule.tasks[static_cast<std::size_t>(i)], *workspace);
                     });

  const std::int64_t poisoned = shared.poisoned.load();
  if (poisoned < 0) return std::nullopt;
  const std::int64_t tiles = layout.tiles().count();
  const std::int64_t heads = layout.extent().heads;
  return Poisoned{poisoned / tiles / heads, poisoned / tiles % heads, poisoned % tiles};
}

}  // namespace treadle::run
