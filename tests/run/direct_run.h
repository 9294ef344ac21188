// A forward or backward pass without a call around it: the test brings positions, a source of keys
// and scratch.
//
//   DirectRun run(options, DType::f32, 16, 16);
//   Rows got = run.forward(q, source, layout, scratch);
#pragma once

#include "api/stages.h"
#include "backend/cpu/call_facts.h"
#include "backend/cpu/kernel_sets.h"
#include "forward_run.h"
#include "layout/build.h"
#include "plan/capture_descriptors.h"
#include "plan/schedule.h"
#include "run/backward.h"
#include "run/forward.h"

namespace treadle::test {

class DirectRun {
 public:
  DirectRun(const Options& options, DType type, std::int64_t dim, std::int64_t value_dim)
      : stages_(api::stages_of(options)),
        forms_(backend::cpu::forms_of(stages_.program)),
        sets_(engine_, stages_.program, forms_) {
    bound_ = {
        .score_mod = api::memory_of(stages_.program.score_mod.slots(), stages_.captures),
        .mask = api::memory_of(stages_.program.mask.slots(), stages_.captures),
        .derivative = api::memory_of(stages_.program.derivative.graph.slots(), stages_.captures)};
    kind_ = {.target = plan::host_target(),
             .q = type,
             .k = type,
             .v = type,
             .compute = type == DType::f64 ? DType::f64 : DType::f32,
             .dim = dim,
             .value_dim = value_dim};
  }

  // From now on mods of so many nodes are cut.
  void cut(const plan::PieceSize& size) { kind_.mods = size; }

  [[nodiscard]] layout::Layout build(const layout::Extent& extent, std::int64_t height,
                                     const layout::Order& order = {}) const {
    return layout::build({stages_.program.mask, bound_.mask}, extent,
                         layout::Tiles(order, extent.queries, height), *serial_executor());
  }
  [[nodiscard]] plan::TilePlan plan(int vectors) const {
    return backend::cpu::plan_of(kind_, vectors);
  }

  Rows forward(const Tensor& q, const run::KeySource& keys, const layout::Layout& layout,
               run::Scratch& scratch, Executor& executor = *serial_executor()) {
    find_facts(layout);
    const auto kernels = sets_.forward(kind_);
    const plan::TilePlan& widest = kernels->widest().plan;
    const plan::Schedule schedule = plan::schedule(
        layout, {.key_heads = keys.heads(),
                 .most_queries = widest.width(),
                 .tiles_per_group = plan::tiles_per_group(widest, keys.needs_copy(widest.compute)),
                 .threads = executor.threads(),
                 .weights = plan::tile_weights(widest.target, widest.compute)});
    Rows rows{Tensor(q.dtype(), {q.size(0), q.size(1), q.size(2), kind_.value_dim}),
              Tensor(kind_.compute, {q.size(0), q.size(1), q.size(2)}),
              Tensor(kind_.compute, {q.size(0), q.size(1), q.size(2)})};
    const run::ForwardProblem problem{
        .q = q,
        .keys = keys,
        .out = rows.out,
        .lse = rows.lse.view(),
        .max = rows.max.view(),
        .scale = 0.25,
        .score_captures = plan::capture_descriptors(backend::cpu::score_memory(forms_, bound_))};
    const run::ForwardPass pass{{{*kernels, layout, plan::capture_descriptors(bound_.mask)}},
                                schedule};
    EXPECT_FALSE(run::forward({&pass, 1}, problem, executor, scratch).has_value());
    return rows;
  }

  struct Gradients {
    Tensor dq, dk, dv;
  };
  bool by_chunks = false;  // tasks of a backward pass own chunks of keys, where others could, too
  Gradients backward(const Tensor& q, const run::KeySource& keys, const Rows& saved,
                     const Tensor& dout, const layout::Layout& layout, run::Scratch& scratch,
                     Executor& executor = *serial_executor()) {
    find_facts(layout);
    const auto kernels = sets_.backward(
        {.forward = kind_,
         .derivative_facts = facts_.derivative,
         .vectors = plan::vectors_for(kind_.target, kind_.compute, layout.tiles().height())});
    const std::int64_t length = keys.positions().count();
    Gradients g{Tensor(q.dtype(), q.shape()),
                Tensor(kind_.k, {keys.batch(), keys.heads(), length, kind_.dim}),
                Tensor(kind_.v, {keys.batch(), keys.heads(), length, kind_.value_dim})};
    const run::BackwardProblem problem{
        .q = q,
        .out = saved.out,
        .dout = dout,
        .keys = keys,
        .lse = saved.lse,
        .dlse = {},
        .dq = g.dq,
        .dk = g.dk,
        .dv = g.dv,
        .scale = 0.25,
        .score_captures = plan::capture_descriptors(backend::cpu::score_memory(forms_, bound_)),
        .derivative_captures = plan::capture_descriptors(bound_.derivative),
        .captured = {},
        .gradient_strides = {}};
    const run::BackwardPass pass{
        *kernels, layout, plan::capture_descriptors(bound_.mask),
        by_chunks ? plan::schedule_chunks(layout, {keys.batch(), keys.heads()}, {},
                                          plan::chunks_per_task(layout))
                  : plan::schedule_backward(layout, {keys.batch(), keys.heads()}, {})};
    const run::BackwardDone done =
        run::backward({&pass, 1}, problem, run::Nonfinite::fast, executor, scratch);
    EXPECT_FALSE(done.poisoned.has_value());
    EXPECT_FALSE(done.nan);
    return g;
  }

 private:
  void find_facts(const layout::Layout& layout) {
    facts_ = backend::cpu::find_backward_facts(stages_.program, forms_, bound_, layout);
    kind_.score_facts = facts_.score;
    kind_.mask_facts = facts_.mask;
  }

  jit::Engine engine_{jit::EngineOptions{}};
  api::Stages stages_;
  backend::cpu::Forms forms_;
  backend::cpu::KernelSets sets_;
  backend::Bindings bound_;
  backend::cpu::ForwardKind kind_;
  backend::cpu::CallFacts facts_;
};

}  // namespace treadle::test
