// The stages of a call that takes the general way.
#include "backend/cpu/forward_call.h"

#include <algorithm>
#include <utility>

#include "layout/shared_choices.h"
#include "plan/capture_descriptors.h"

namespace treadle::backend::cpu {
namespace {

plan::ScheduleOptions schedule_options(const run::ForwardPass& pass, const run::KeySource& keys,
                                       const base::Workers& workers) {
  const plan::TilePlan& widest = pass.widest().plan;
  const bool copies = keys.needs_copy(widest.compute) ||
                      pass.layout().tiles().order().kind == layout::Order::Kind::residue;
  return {.key_heads = keys.heads(),
          .most_queries = widest.width(),
          .tiles_per_group = plan::tiles_per_group(widest, copies),
          .threads = workers.threads(),
          .weights = plan::tile_weights(widest.target, widest.compute)};
}

// Tasks of one stage stay in their order.
void sort_by_stage(std::vector<plan::Task>& tasks, const run::KeySource& keys) {
  std::vector<std::pair<int, std::size_t>> order;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    order.emplace_back(run::stage_of(keys, tasks[i].chunks), i);
  std::ranges::sort(order);
  const std::vector<plan::Task> before = tasks;
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i] = before[order[i].second];
}

}  // namespace

Cpu::ForwardCall::ForwardCall(const Cpu& cpu, const ForwardRequest& request, Layout layout,
                              run::Missing& missing)
    : cpu_(cpu), request_(request), layout_(std::move(layout)) {
  const Layout::Held& held = *layout_.held();
  for (const Layout::Held::Term& term : held.terms) {
    const CallFacts facts =
        find_forward_facts(cpu.program_, cpu.forms_, request.bound, term.layout, term.mask.get());
    checked_ = checked_ || facts.checked();
    const ForwardKind kind = cpu.kind_of(request, facts, term);
    kernels_.push_back(cpu.kernels_.forward(kind));
    needed(*kernels_.back(), term.layout, held.terms.size() == 1, missing);
    // Terms with the same tiles of queries are looked at together.
    if (passes_.empty() ||
        !layout::share_a_pass(passes_.back().layout().tiles(), term.layout.tiles()))
      passes_.emplace_back();
    passes_.back().terms.push_back(
        {*kernels_.back(), term.layout, cpu.mask_captures(request, kind), held.listed.has_value()});
  }
}

run::Work& Cpu::ForwardCall::prepare(bool in_private) {
  memory_.emplace(request_, in_private);
  for (run::ForwardPass& pass : passes_) {
    plan::ScheduleOptions options = schedule_options(pass, memory_->keys(), request_.workers);
    options.may_cut = layout_.held()->terms.size() == 1 && request_.states == nullptr;
    pass.schedule = plan::schedule(pass.layouts(), options);
    if (request_.keys != nullptr) sort_by_stage(pass.schedule.tasks, *request_.keys);
  }
  problem_.emplace(memory_->problem(request_));
  problem_->score_captures = plan::capture_descriptors(score_memory(cpu_.forms_, request_.bound));
  return work_.emplace(passes_, *problem_, request_.workers, cpu_.process_.scratch);
}

void Cpu::ForwardCall::finish() const {
  if (const auto poisoned = work_->poisoned())
    cpu_.explain(request_, memory_->keys(), *layout_.held(), *poisoned);
}

}  // namespace treadle::backend::cpu
