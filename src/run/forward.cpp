// A forward call's passes, their tasks handed to threads, and room for what cut tasks and passes
// leave to one another.
#include "run/forward.h"

#include <algorithm>
#include <memory>

#include "base/parallel.h"
#include "run/forward_worker.h"

namespace treadle::run {
namespace {

PassOrder order_of(std::span<const ForwardPass> passes) {
  if (passes.size() == 1) return {};
  std::vector<std::vector<const layout::Layout*>> layouts;
  for (const ForwardPass& pass : passes) layouts.push_back(pass.layouts());
  return PassOrder(layouts);
}

// Where the partial results of each cut begin; the bytes of all.
std::size_t place_cuts(ForwardShared& shared) {
  const std::vector<plan::Cut>& cuts = shared.pass.schedule.cuts;
  shared.partial_offsets.reserve(cuts.size());
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    shared.pieces_left[i] = cuts[i].pieces;
    shared.partial_offsets.push_back(bytes);
    bytes += static_cast<std::size_t>(cuts[i].chunks.count() * cuts[i].count) *
             state_bytes(shared.pass.widest().plan);
  }
  return bytes;
}

}  // namespace

std::optional<Poisoned> forward(std::span<const ForwardPass> passes, const ForwardProblem& problem,
                                const base::Workers& workers, Scratch& scratch) {
  const PassOrder order = order_of(passes);
  std::vector<std::unique_ptr<ForwardShared>> all;
  std::size_t partial_bytes = 0;
  std::int64_t threads = 0;
  std::size_t first_term = 0;
  WorkspaceNeed need;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const ForwardPass& pass = passes[i];
    const plan::TilePlan& plan = pass.widest().plan;
    all.push_back(std::make_unique<ForwardShared>(
        problem, pass, i, first_term, order,
        plan::kernel_vectors(pass.layout().tiles(), plan.target.lanes(plan.compute)), workers));
    first_term += pass.terms.size();
    partial_bytes = std::max(partial_bytes, place_cuts(*all.back()));
    need.cover(workspace_need(*all.back()));
    const auto tasks = static_cast<std::int64_t>(pass.schedule.tasks.size());
    threads = std::max(threads, std::min<std::int64_t>(tasks, workers.threads()));
    if (problem.keys.needs_copy(plan.keys.element)) {
      pass.kernels().load_k.prepare();
      pass.kernels().load_v.prepare();
    }
  }
  // Cuts of one pass are done with when the next begins.
  std::optional<Scratch::Share> between;
  const std::size_t row_bytes = order.has_states() ? row_state_bytes(*all.front()) : 0;
  if (partial_bytes + row_bytes > 0) {
    between.emplace(scratch, 1, WorkspaceNeed{.bytes = partial_bytes + row_bytes});
    for (const auto& shared : all) {
      shared->rows = between->front().memory();
      shared->partial = between->front().memory() + row_bytes;
    }
  }
  Scratch::Share share(scratch, threads, need);
  // From here on nothing is allocated: results are written.
  for (const auto& shared : all) {
    const std::vector<plan::Task>& tasks = shared->pass.schedule.tasks;
    const auto count = static_cast<std::int64_t>(tasks.size());
    const auto task = [&](std::int64_t i) { return tasks.data() + i; };
    base::parallel_for(workers, count, [&](std::int64_t i) {
      const Scratch::Lease workspace = share.lend();
      // Threads begin tasks in turn, as long as those take equally long.
      const std::int64_t next = i + workers.threads();
      run_task(*shared, *task(i), next < count ? task(next) : nullptr, *workspace);
    });
    if (const auto poisoned = shared->poisoned.found()) return poisoned;
  }
  return std::nullopt;
}

}  // namespace treadle::run
