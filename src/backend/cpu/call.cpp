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
#include "backend/held_layout.h"
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
  const Layout held =
      call.layout.empty() ? layout(call.sizes, call.bound, call.workers) : call.layout;
  const layout::Layout& layout = held.held()->layout;
  const CallFacts facts = find_forward_facts(program_, forms_, call.bound, layout);
  const auto kernels = kernels_.forward(kind_of(call, facts));
  compile(needed(*kernels, layout), call.workers);
  const ForwardMemory memory(call, forms_, facts.checked());
  const plan::Schedule schedule =
      plan::schedule(layout, schedule_options(kernels->widest().plan, memory.keys(), call.workers));
  const auto poisoned = run::forward(*kernels, memory.problem(call, layout), schedule, call.workers,
                                     process_.scratch);
  if (poisoned) explain(call, layout, *poisoned);
  memory.deliver();
}

void Cpu::backward(const BackwardRequest& call) const {
  if (call.sizes.batch == 0 || call.sizes.heads == 0 || call.sizes.queries.empty() ||
      call.sizes.keys.empty())
    return fill_with_zeros(call.results);
  const Layout held =
      call.layout.empty() ? layout(call.sizes, call.bound, call.workers) : call.layout;
  const layout::Layout& layout = held.held()->layout;
  const CallFacts facts = find_backward_facts(program_, forms_, call.bound, layout);
  const auto kernels = kernels_.backward(
      {.forward = kind_of(call, facts),
       .derivative_facts = facts.derivative,
       .vectors = plan::vectors_for(target_, call.sizes.compute, layout.tiles().height())});
  compile(needed(*kernels, layout), call.workers);
  // A NaN may have come from a hidden pair that was multiplied with zero: then once more, exactly.
  for (const run::Nonfinite nonfinite : {run::Nonfinite::fast, run::Nonfinite::exact}) {
    const BackwardMemory memory(call, program_, forms_, facts.checked());
    const plan::BackwardSchedule schedule = plan::schedule_backward(
        call.sizes.key_batch, call.sizes.key_heads, call.sizes.keys, memory.reaches());
    const run::BackwardDone done = run::backward(*kernels, memory.problem(call, layout), schedule,
                                                 nonfinite, call.workers, process_.scratch);
    if (done.nan && nonfinite == run::Nonfinite::fast) continue;
    if (done.poisoned) explain(call, layout, *done.poisoned);
    return memory.deliver();
  }
}

}  // namespace treadle::backend::cpu
