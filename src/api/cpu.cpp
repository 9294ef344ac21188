#include "api/cpu.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "api/call_memory.h"
#include "api/process.h"
#include "base/dump.h"
#include "base/error.h"
#include "layout/choose.h"
#include "plan/mod_facts.h"
#include "run/forward.h"
#include "run/poison.h"

namespace treadle::api {
namespace {

plan::Target target_named(const std::string& name) {
  plan::Target target = plan::host_target();
  if (name.empty() || name == target.name) return target;
  plan::Target wanted = plan::find_target(name);
  const std::vector<std::string> runnable = plan::runnable_targets();
  if (std::ranges::find(runnable, name) == runnable.end()) {
    base::fail("compile: the target is \"{}\", which this processor cannot run; it runs {}", name,
               fmt::join(runnable, ", "));
  }
  wanted.l1 = target.l1;
  wanted.l2 = target.l2;
  wanted.cores = target.cores;
  return wanted;
}

bool is_true(const ir::Graph& mask) {
  const ir::Node& node = mask[mask.output()];
  return node.op == ir::Op::constant && node.boolean();
}

}  // namespace

DType compute_type(const Inputs& inputs) {
  const auto wide = [](const ConstView& view) { return view.dtype() == DType::f64; };
  return wide(inputs.q) || wide(inputs.k) || wide(inputs.v) ? DType::f64 : DType::f32;
}

layout::Extent extent_of(const Inputs& inputs) {
  return {inputs.q.size(0), inputs.q.size(1), inputs.q.size(2), inputs.k.size(2)};
}

const std::shared_ptr<Executor>& default_executor() {
  static const auto* executor = new std::shared_ptr<Executor>(tbb_executor());
  return *executor;
}

Cpu::Cpu(const ir::Graph& score_mod, const ir::Joint& derivative, const ir::Graph& mask,
         const std::string& target)
    : score_mod_(score_mod),
      mask_(mask),
      derivative_(derivative),
      score_(plan::score_form(score_mod)),
      target_(target_named(target)),
      sees_all_(is_true(mask)) {}

std::int64_t Cpu::scratch_bytes(DType compute, std::int64_t dim, std::int64_t value_dim) const {
  const plan::TilePlan plan = plan::plan_tile(target_, compute, dim, value_dim, plan::most_vectors);
  const std::int64_t tile = plan.width() * (dim + 2 * (value_dim + 2) + 1);
  const std::int64_t block = plan.key_block * (dim + value_dim + plan.width() + 1) +
                             plan.width() * std::max(dim, value_dim);
  return (tile * plan::tiles_per_group(plan, true) + block) *
         static_cast<std::int64_t>(size_of(compute));
}

Layout Cpu::make_layout(const layout::Extent& extent, DType compute, const Bindings& bound,
                        Executor& executor) const {
  const layout::Mask mask{mask_, bound.mask};
  const layout::TileWeights weights = plan::tile_weights(target_, compute);
  const layout::Choice choice = layout::choose_order(mask, extent, weights, executor);
  auto held = std::make_shared<Layout::Held>();
  held->layout = layout::build(
      mask, extent, layout::Tiles(choice.order, extent.queries, choice.height), executor);
  held->mask = mask_.hash();
  if (base::dump_wanted(base::Dump::layout))
    base::dump(base::Dump::layout, "forward", layout::to_text(held->layout));
  return Layout(std::move(held));
}

std::shared_ptr<run::ForwardKernels> Cpu::kernels(const Inputs& inputs, const Bindings& bound,
                                                  const layout::Layout& layout) const {
  run::ForwardSpec spec{.target = target_,
                        .q = inputs.q.dtype(),
                        .k = inputs.k.dtype(),
                        .v = inputs.v.dtype(),
                        .compute = compute_type(inputs),
                        .dim = inputs.q.size(3),
                        .value_dim = inputs.v.size(3)};
  const layout::Extent extent = extent_of(inputs);
  const layout::Order& order = layout.tiles().order();
  spec.score_facts.checked = spec.mask_facts.checked = false;  // where there is nothing to read
  if (score_.kind != plan::ScoreForm::Kind::plain)
    spec.score_facts = plan::find_facts(score_.graph, bound.score, extent, order);
  if (!sees_all_) spec.mask_facts = plan::find_facts(mask_, bound.mask, extent, order);

  const auto same = [&](const std::shared_ptr<run::ForwardKernels>& kernels) {
    const run::ForwardSpec& s = kernels->spec();
    return s.q == spec.q && s.k == spec.k && s.v == spec.v && s.dim == spec.dim &&
           s.value_dim == spec.value_dim && s.score_facts == spec.score_facts &&
           s.mask_facts == spec.mask_facts;
  };
  {
    const std::shared_lock lock(mutex_);
    if (const auto found = std::ranges::find_if(known_, same); found != known_.end()) return *found;
  }
  spec.score = score_;
  spec.mask = mask_;
  auto made = std::make_shared<run::ForwardKernels>(process().engine, std::move(spec));
  if (base::dump_wanted(base::Dump::plan)) {
    base::dump(base::Dump::plan, "forward",
               to_text(target_) + "\n" + to_text(made->plan(plan::most_vectors)) + "\n");
  }
  const std::unique_lock lock(mutex_);
  if (const auto found = std::ranges::find_if(known_, same); found != known_.end()) return *found;
  known_.push_back(made);
  return made;
}

void Cpu::forward(const Inputs& inputs, double scale, const Bindings& bound, const Layout& given,
                  const ForwardViews& results, Executor& executor) const {
  const layout::Extent extent = extent_of(inputs);
  if (extent.batch == 0 || extent.heads == 0 || extent.queries.count() == 0) return;
  const Layout made =
      given.empty() ? make_layout(extent, compute_type(inputs), bound, executor) : given;
  const layout::Layout& layout = made.held()->layout;
  const std::shared_ptr<run::ForwardKernels> kernels = this->kernels(inputs, bound, layout);

  const Rows q(inputs.q), k(inputs.k), v(inputs.v);
  // A call that may fail, or whose results lie where it reads, works aside.
  bool aside = kernels->spec().score_facts.checked || kernels->spec().mask_facts.checked;
  const auto collides = [&](const ConstView& read) {
    aside = aside || overlaps(read, results.out) || (results.lse && overlaps(read, *results.lse)) ||
            (results.max && overlaps(read, *results.max));
  };
  collides(q.view());
  collides(k.view());
  collides(v.view());
  std::ranges::for_each(bound.score, collides);
  std::ranges::for_each(bound.mask, collides);
  const Result out(results.out, aside || !has_unit_rows(results.out));
  std::optional<Result> lse, max;
  if (results.lse) lse.emplace(*results.lse, aside);
  if (results.max) max.emplace(*results.max, aside);

  run::ForwardProblem problem{.q = q.view(),
                              .k = k.view(),
                              .v = v.view(),
                              .out = out.view(),
                              .lse = std::nullopt,
                              .max = std::nullopt,
                              .scale = scale,
                              .layout = &layout,
                              .score_words = words_of(bound.score),
                              .mask_words = words_of(bound.mask)};
  if (lse) problem.lse = lse->view();
  if (max) problem.max = max->view();
  if (const auto where = run::forward(*kernels, problem, executor, process().scratch))
    report(inputs, scale, bound, layout, *where);
  out.deliver();
  if (lse) lse->deliver();
  if (max) max->deliver();
}

void Cpu::report(const Inputs& inputs, double scale, const Bindings& bound,
                 const layout::Layout& layout, const run::Poisoned& where) const {
  run::report({.q = inputs.q,
               .k = inputs.k,
               .scale = scale,
               .score_mod = score_mod_,
               .score_memory = bound.score_mod,
               .mask = mask_,
               .mask_memory = bound.mask,
               .layout = &layout},
              where);
}

}  // namespace treadle::api
