// A forward call's passes as phases, their tasks as items, and room for what cut tasks and passes
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

ForwardWork::ForwardWork(std::span<const ForwardPass> passes, const ForwardProblem& problem,
                         const base::Workers& workers, Scratch& scratch)
    : order_(order_of(passes)) {
  std::size_t partial_bytes = 0;
  std::size_t first_term = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const ForwardPass& pass = passes[i];
    const plan::TilePlan& plan = pass.widest().plan;
    all_.push_back(std::make_unique<ForwardShared>(
        problem, pass, i, first_term, order_,
        plan::kernel_vectors(pass.layout().tiles(), plan.target.lanes(plan.compute)), workers));
    first_term += pass.terms.size();
    partial_bytes = std::max(partial_bytes, place_cuts(*all_.back()));
    need_.cover(workspace_need(*all_.back()));
    if (problem.keys.needs_copy(plan.keys.element)) {
      pass.kernels().load_k.prepare();
      pass.kernels().load_v.prepare();
    }
  }
  // Cuts of one pass are done with when the next begins.
  const std::size_t row_bytes = order_.has_states() ? row_state_bytes(*all_.front()) : 0;
  if (partial_bytes + row_bytes == 0) return;
  between_.emplace(scratch, 1, WorkspaceNeed{.bytes = partial_bytes + row_bytes});
  for (const auto& shared : all_) {
    shared->rows = between_->front().memory();
    shared->partial = between_->front().memory() + row_bytes;
  }
}

ForwardWork::~ForwardWork() = default;

std::int64_t ForwardWork::count(int phase) const {
  return std::ssize(all_[static_cast<std::size_t>(phase)]->pass.schedule.tasks);
}

double ForwardWork::cost(int phase, std::int64_t item) const {
  const std::vector<plan::Task>& tasks = all_[static_cast<std::size_t>(phase)]->pass.schedule.tasks;
  return tasks[static_cast<std::size_t>(item)].cost;
}

int ForwardWork::stage(int phase, std::int64_t item) const {
  const ForwardShared& shared = *all_[static_cast<std::size_t>(phase)];
  return stage_of(shared.problem.keys,
                  shared.pass.schedule.tasks[static_cast<std::size_t>(item)].chunks);
}

void ForwardWork::run(int phase, std::int64_t item, std::int64_t next, Workspace& workspace) {
  ForwardShared& shared = *all_[static_cast<std::size_t>(phase)];
  const plan::Task* tasks = shared.pass.schedule.tasks.data();
  run_task(shared, tasks[item], next < 0 ? nullptr : tasks + next, workspace);
}

std::optional<Poisoned> ForwardWork::poisoned() const {
  for (const auto& shared : all_) {
    if (const auto found = shared->poisoned.found()) return found;
  }
  return std::nullopt;
}

std::optional<Poisoned> forward(std::span<const ForwardPass> passes, const ForwardProblem& problem,
                                const base::Workers& workers, Scratch& scratch) {
  ForwardWork work(passes, problem, workers, scratch);
  Work* const only = &work;
  run::run({&only, 1}, workers, scratch);
  return work.poisoned();
}

}  // namespace treadle::run
