// A call on the CPU backend, stage by stage: the second table of contents, after api/compile.cpp.
//
//   check, bind            api/attention.cpp: a request has good input only
//   layout                 src/layout    which keys each tile of queries looks at
//   facts                  src/plan      what is proven of the mods for these sizes and captures
//   kernels                src/emit, jit the code for all that; compiled here, or found
//   memory                 where results are computed
//   schedule               src/plan      tasks, longest first
//   run                    src/run       tiles against keys on all threads
//   deliver                results to the caller, when nothing can fail any more
#include <utility>

#include "backend/cpu/call_memory.h"
#include "backend/cpu/cpu.h"
#include "base/parallel.h"
#include "layout/shared_choices.h"
#include "plan/capture_descriptors.h"
#include "run/backward.h"
#include "run/decode.h"
#include "run/forward.h"

namespace treadle::backend::cpu {
namespace {

// Compiles what a layout needs and no call before needed: all at once, on all threads.
void compile(const run::Missing& missing, const base::Workers& workers) {
  base::parallel_for(workers, missing.count(), [&](std::int64_t i) { missing.prepare(i); });
}

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

}  // namespace

void Cpu::forward(const ForwardRequest& call) const {
  if (call.sizes.batch == 0 || call.sizes.heads == 0 || call.sizes.queries.empty()) return;
  const Layout layout =
      call.layout.empty() ? Cpu::layout(call.sizes, call.bound, call.workers) : call.layout;
  const Layout::Held& held = *layout.held();
  if (decode(call, held)) return;
  const bool only = held.terms.size() == 1;
  bool checked = false;
  std::vector<std::shared_ptr<const run::ForwardKernels>> kernels;
  run::Missing missing;
  std::vector<run::ForwardPass> passes;
  for (const Layout::Held::Term& term : held.terms) {
    const CallFacts facts =
        find_forward_facts(program_, forms_, call.bound, term.layout, term.mask.get());
    checked = checked || facts.checked();
    const ForwardKind kind = kind_of(call, facts, term);
    kernels.push_back(kernels_.forward(kind));
    needed(*kernels.back(), term.layout, only, missing);
    // Terms with the same tiles of queries are looked at together.
    if (passes.empty() ||
        !layout::share_a_pass(passes.back().layout().tiles(), term.layout.tiles()))
      passes.emplace_back();
    passes.back().terms.push_back(
        {*kernels.back(), term.layout, mask_captures(call, kind), held.listed.has_value()});
  }
  compile(missing, call.workers);
  const ForwardMemory memory(call, forms_, checked);
  for (run::ForwardPass& pass : passes) {
    plan::ScheduleOptions options = schedule_options(pass, memory.keys(), call.workers);
    options.may_cut = only;
    pass.schedule = plan::schedule(pass.layouts(), options);
  }
  const auto poisoned = run::forward(passes, memory.problem(call), call.workers, process_.scratch);
  if (poisoned) explain(call, held, *poisoned);
  memory.deliver();
}

std::optional<Cpu::DecodePlan> Cpu::plan_decode(const Request& call,
                                                const Layout::Held& held) const {
  const Layout::Held::Term& term = held.terms.front();
  const std::int64_t group = call.sizes.heads / call.sizes.key_heads;
  if (held.terms.size() > 1 || term.mask != nullptr ||
      !plan::decodes(target_, call.sizes.compute, term.layout, group))
    return std::nullopt;
  TurnedMods mods = find_turned_facts(program_, forms_, call.bound, term.layout.extent());
  if (mods.facts.checked()) return std::nullopt;
  DecodeKind kind{kind_of(call, mods.facts, term),
                  plan::RowBlocks(group * call.sizes.queries.count())};
  kind.forward.sparse = false;  // which its kernels do not look at
  return DecodePlan{std::move(kind), std::move(mods)};
}

bool Cpu::decode(const ForwardRequest& call, const Layout::Held& held) const {
  const auto plan = plan_decode(call, held);
  if (!plan) return false;
  const layout::Layout& layout = held.terms.front().layout;
  const auto kernels = kernels_.decode(plan->kind);
  run::Missing missing;
  needed(*kernels, layout, missing);
  compile(missing, call.workers);
  const ForwardMemory memory(call, forms_, false);
  const run::DecodeCaptures captures{plan::capture_descriptors(plan->mods.score_memory),
                                     plan::capture_descriptors(plan->mods.mask_memory)};
  if (!run::decode(*kernels, layout, captures, memory.problem(call), call.workers,
                   process_.scratch))
    return false;
  memory.deliver();
  return true;
}

void Cpu::backward(const BackwardRequest& call) const {
  if (call.sizes.batch == 0 || call.sizes.heads == 0 || call.sizes.queries.empty() ||
      call.sizes.keys.empty())
    return fill_with_zeros(call.results);
  const Layout layout =
      call.layout.empty() ? Cpu::layout(call.sizes, call.bound, call.workers) : call.layout;
  const Layout::Held& held = *layout.held();
  const bool adds_up = held.terms.size() > 1;
  bool checked = false;
  std::vector<std::shared_ptr<const run::BackwardKernels>> kernels;
  run::Missing missing;
  std::vector<run::BackwardPass> passes;
  for (const Layout::Held::Term& term : held.terms) {
    const CallFacts facts =
        find_backward_facts(program_, forms_, call.bound, term.layout, term.mask.get());
    checked = checked || facts.checked();
    const ForwardKind kind = kind_of(call, facts, term);
    const std::int64_t height = term.layout.tiles().height();
    kernels.push_back(
        kernels_.backward({.forward = kind,
                           .derivative_facts = facts.derivative,
                           .vectors = plan::vectors_for(target_, call.sizes.compute, height),
                           .adds_up = adds_up}));
    needed(*kernels.back(), term.layout, missing);
    passes.push_back({*kernels.back(), term.layout, mask_captures(call, kind), {}});
  }
  compile(missing, call.workers);
  // A NaN may have come from a hidden pair that was multiplied with zero: then once more, exactly.
  for (const run::Nonfinite nonfinite : {run::Nonfinite::fast, run::Nonfinite::exact}) {
    const BackwardMemory memory(call, program_, forms_, checked, adds_up);
    for (run::BackwardPass& pass : passes) {
      pass.schedule = plan::schedule_backward(
          pass.layout, {call.sizes.key_batch, call.sizes.key_heads}, memory.reaches());
    }
    const run::BackwardDone done =
        run::backward(passes, memory.problem(call), nonfinite, call.workers, process_.scratch);
    if (done.nan && nonfinite == run::Nonfinite::fast) continue;
    if (done.poisoned) explain(call, held, *done.poisoned);
    return memory.deliver();
  }
}

}  // namespace treadle::backend::cpu
