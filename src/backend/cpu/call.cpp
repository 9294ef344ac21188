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
#include "backend/cpu/call_memory.h"
#include "backend/cpu/cpu.h"
#include "base/parallel.h"
#include "run/backward.h"
#include "run/forward.h"

namespace treadle::backend::cpu {
namespace {

// Compiles what a layout needs and no call before needed: all at once, on all threads.
void compile(const std::vector<std::function<void()>>& missing, const base::Workers& workers) {
  base::parallel_for(workers, static_cast<std::int64_t>(missing.size()),
                     [&](std::int64_t i) { missing[static_cast<std::size_t>(i)](); });
}

plan::ScheduleOptions schedule_options(const plan::TilePlan& widest, const run::KeySource& keys,
                                       const base::Workers& workers) {
  return {.key_heads = keys.heads(),
          .most_queries = widest.width(),
          .tiles_per_group = plan::tiles_per_group(widest, keys.needs_copy(widest.compute)),
          .threads = workers.threads(),
          .weights = plan::tile_weights(widest.target, widest.compute)};
}

}  // namespace

void Cpu::forward(const ForwardRequest& call) const {
  if (call.sizes.batch == 0 || call.sizes.heads == 0 || call.sizes.queries.empty()) return;
  const Layout layout =
      call.layout.empty() ? Cpu::layout(call.sizes, call.bound, call.workers) : call.layout;
  const Layout::Held& held = *layout.held();
  bool checked = false;
  std::vector<ForwardKind> kinds;
  std::vector<std::shared_ptr<const run::ForwardKernels>> kernels;
  for (const Layout::Held::Pass& pass : held.passes) {
    const CallFacts facts =
        find_forward_facts(program_, forms_, call.bound, pass.layout, pass.term.get());
    checked = checked || facts.checked();
    kinds.push_back(kind_of(call, facts, pass));
    kernels.push_back(kernels_.forward(kinds.back()));
    compile(needed(*kernels.back(), pass.layout, held.passes.size() == 1), call.workers);
  }
  const ForwardMemory memory(call, forms_, checked);
  std::vector<run::ForwardPass> passes;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const layout::Layout& tiles = held.passes[i].layout;
    // Terms with the same tiles of queries are looked at together.
    const bool goes_on = i > 0 && passes.back().layout().tiles() == tiles.tiles();
    if (!goes_on) passes.emplace_back();
    passes.back().terms.push_back({*kernels[i], tiles, mask_captures(call, kinds[i])});
  }
  for (run::ForwardPass& pass : passes) {
    std::vector<const layout::Layout*> layouts;
    for (const run::ForwardPass::Term& term : pass.terms) layouts.push_back(&term.layout);
    plan::ScheduleOptions options =
        schedule_options(pass.widest().plan, memory.keys(), call.workers);
    options.may_cut = held.passes.size() == 1;
    pass.schedule = plan::schedule(layouts, options);
  }
  const auto poisoned = run::forward(passes, memory.problem(call), call.workers, process_.scratch);
  if (poisoned) explain(call, held, *poisoned);
  memory.deliver();
}

void Cpu::backward(const BackwardRequest& call) const {
  if (call.sizes.batch == 0 || call.sizes.heads == 0 || call.sizes.queries.empty() ||
      call.sizes.keys.empty())
    return fill_with_zeros(call.results);
  const Layout layout =
      call.layout.empty() ? Cpu::layout(call.sizes, call.bound, call.workers) : call.layout;
  const Layout::Held& held = *layout.held();
  const bool adds_up = held.passes.size() > 1;
  bool checked = false;
  std::vector<std::shared_ptr<const run::BackwardKernels>> kernels;
  std::vector<run::BackwardPass> passes;
  for (const Layout::Held::Pass& pass : held.passes) {
    const CallFacts facts =
        find_backward_facts(program_, forms_, call.bound, pass.layout, pass.term.get());
    checked = checked || facts.checked();
    const ForwardKind kind = kind_of(call, facts, pass);
    const std::int64_t height = pass.layout.tiles().height();
    kernels.push_back(
        kernels_.backward({.forward = kind,
                           .derivative_facts = facts.derivative,
                           .vectors = plan::vectors_for(target_, call.sizes.compute, height),
                           .adds_up = adds_up}));
    compile(needed(*kernels.back(), pass.layout), call.workers);
    passes.push_back({*kernels.back(), pass.layout, mask_captures(call, kind), {}});
  }
  // A NaN may have come from a hidden pair that was multiplied with zero: then once more, exactly.
  for (const run::Nonfinite nonfinite : {run::Nonfinite::fast, run::Nonfinite::exact}) {
    const BackwardMemory memory(call, program_, forms_, checked, adds_up);
    for (run::BackwardPass& pass : passes) {
      pass.schedule =
          plan::schedule_backward(call.sizes.key_batch, call.sizes.key_heads, call.sizes.keys,
                                  memory.reaches(), plan::chunks_per_task(pass.layout));
    }
    const run::BackwardDone done =
        run::backward(passes, memory.problem(call), nonfinite, call.workers, process_.scratch);
    if (done.nan && nonfinite == run::Nonfinite::fast) continue;
    if (done.poisoned) explain(call, held, *done.poisoned);
    return memory.deliver();
  }
}

}  // namespace treadle::backend::cpu
