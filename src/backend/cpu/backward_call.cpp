// The stages of a backward call.
#include "backend/cpu/backward_call.h"

#include <algorithm>

namespace treadle::backend::cpu {
namespace {

// What is here first. Of equal ones those before stay before.
void sort_by_stage(plan::BackwardSchedule& schedule, const run::KeySource& keys) {
  std::ranges::stable_sort(schedule.groups, {},
                           [&](const auto& group) { return keys.stage(group.front().keys); });
}

}  // namespace

Cpu::BackwardCall::BackwardCall(const Cpu& cpu, const BackwardRequest& request,
                                const Layout& layout)
    : cpu_(cpu), request_(request), layout_(layout) {
  const Layout::Held& held = *layout_.held();
  adds_up_ = held.terms.size() > 1 || (request.share != nullptr && request.share->adds_up);
  for (const Layout::Held::Term& term : held.terms) {
    const CallFacts facts =
        find_backward_facts(cpu.program_, cpu.forms_, request.bound, term.layout, term.mask.get());
    checked_ = checked_ || facts.checked();
    const ForwardKind kind = cpu.kind_of(request, facts, term);
    const std::int64_t height = term.layout.tiles().height();
    kernels_.push_back(cpu.kernels_.backward(
        {.forward = kind,
         .derivative_facts = facts.derivative,
         .vectors = plan::vectors_for(cpu.target_, request.sizes.compute, height),
         .adds_up = adds_up_}));
    needed(*kernels_.back(), term.layout, missing_);
    passes_.push_back({*kernels_.back(), term.layout, cpu.mask_captures(request, kind), {}});
  }
}

plan::BackwardSchedule Cpu::BackwardCall::schedule(const layout::Layout& layout,
                                                   const BackwardMemory& memory) const {
  const plan::KeyHeads heads{request_.sizes.key_batch, request_.sizes.key_heads};
  if (request_.share == nullptr) return plan::schedule_backward(layout, heads, memory.reaches());
  return plan::schedule_chunks(layout, heads, memory.reaches(), request_.share->chunks_per_task);
}

BackwardEnd Cpu::BackwardCall::run(run::Nonfinite nonfinite) {
  const BackwardMemory memory(request_, cpu_.program_, cpu_.forms_, checked_, adds_up_);
  for (run::BackwardPass& pass : passes_) {
    pass.schedule = schedule(pass.layout, memory);
    // Nothing is added in the order of tasks then, but parts of dQ, whose turn it may be later.
    if (request_.share != nullptr) sort_by_stage(pass.schedule, memory.keys());
  }
  const run::BackwardDone done = run::backward(passes_, memory.problem(request_), nonfinite,
                                               request_.workers, cpu_.process_.scratch);
  if (done.nan && nonfinite == run::Nonfinite::fast) return BackwardEnd::unclear;
  if (done.poisoned) cpu_.explain(request_, memory.keys(), *layout_.held(), *done.poisoned);
  memory.deliver();
  return BackwardEnd::done;
}

}  // namespace treadle::backend::cpu
