// From kinds of calls to specs of kernels, each compiled when first needed.
#include "backend/cpu/kernel_sets.h"

#include <algorithm>
#include <mutex>

#include "base/dump.h"
#include "base/no_fork.h"
#include "plan/mod_plan.h"
#include "plan/separable.h"

namespace treadle::backend::cpu {
namespace {

// The kernel of a spec, which is made when the kernel is: it holds graphs.
template <class Args, class MakeSpec>
void set(run::LazyKernel<Args>& kernel, jit::Engine& engine, MakeSpec make_spec) {
  kernel.set([&engine, make_spec = std::move(make_spec)] { return engine.get(make_spec()); });
}

plan::TransposeSpec transpose_spec(const plan::TilePlan& plan, std::int64_t length,
                                   std::int64_t row, bool to_rows) {
  return {.target = plan.target,
          .compute = plan.compute,
          .width = plan.width(),
          .length = length,
          .row = row,
          .to_rows = to_rows};
}

void set_copy(run::CopyKernel& kernel, jit::Engine& engine, const plan::CopySpec& spec) {
  set(kernel, engine, [spec] { return spec; });
}

void set_transpose(run::LazyKernel<plan::TransposeArgs>& kernel, jit::Engine& engine,
                   const plan::TransposeSpec& spec) {
  set(kernel, engine, [spec] { return spec; });
}

plan::ModScratch mod_scratch(const plan::TilePlan& plan, const ir::Graph& mod,
                             const plan::ModFacts& facts) {
  return plan::scratch_of(plan::plan_mod(mod, facts, {}, plan.mods),
                          plan.target.lanes(plan.compute));
}

}  // namespace

plan::TilePlan plan_of(const ForwardKind& kind, int vectors) {
  plan::TilePlan plan =
      plan::plan_tile(kind.target, kind.compute, kind.dim, kind.value_dim, vectors);
  plan.mods = kind.mods;
  plan.sparse = kind.sparse;
  return plan;
}

plan::ForwardKernelSpec forward_spec(const Program& program, const Forms& forms,
                                     const ForwardKind& kind, const ForwardVariant& variant) {
  return {.plan = plan_of(kind, variant.vectors),
          .score = forms.score,
          .score_facts = kind.score_facts,
          .masked = variant.masked,
          .mask = variant.masked ? kind.mask.graph(program) : ir::Graph(),
          .mask_facts = kind.mask_facts,
          .exact_nonfinite = variant.exact_nonfinite};
}

plan::ModScratch KernelSets::scratch_of(const ForwardKind& kind) const {
  const plan::TilePlan plan = plan_of(kind, plan::most_vectors);
  plan::ModScratch mods = mod_scratch(plan, kind.mask.graph(program_), kind.mask_facts);
  if (forms_.score.kind != plan::ScoreForm::Kind::plain)
    mods += mod_scratch(plan, forms_.score.graph, kind.score_facts);
  return mods;
}

std::shared_ptr<const run::ForwardKernels> KernelSets::make(const ForwardKind& kind) const {
  auto kernels = std::make_shared<run::ForwardKernels>();
  kernels->compute = kind.compute;
  kernels->query_factor = forms_.score.factor();
  kernels->mods = scratch_of(kind);
  for (int vectors = 1; vectors <= plan::most_vectors; ++vectors) {
    run::ForwardKernels::OfTile& tile = kernels->tiles[static_cast<std::size_t>(vectors - 1)];
    tile.plan = plan_of(kind, vectors);
    const auto block = [&](run::LazyKernel<plan::ForwardKernelArgs>& kernel, bool masked,
                           bool exact) {
      set(kernel, engine_, [this, kind, variant = ForwardVariant{vectors, masked, exact}] {
        return forward_spec(program_, forms_, kind, variant);
      });
    };
    block(tile.full, false, false);
    block(tile.masked, true, false);
    block(tile.exact_full, false, true);
    block(tile.exact_masked, true, true);
    set_transpose(tile.queries_to_lanes, engine_,
                  transpose_spec(tile.plan, kind.dim, kind.dim, false));
    set_transpose(tile.sums_to_rows, engine_,
                  transpose_spec(tile.plan, kind.value_dim, kind.value_dim, true));
    set_transpose(tile.sums_to_lanes, engine_,
                  transpose_spec(tile.plan, kind.value_dim, kind.value_dim, false));
    set(tile.merge, engine_,
        [spec = plan::MergeSpec{kind.target, kind.compute, tile.plan.width(), kind.value_dim}] {
          return spec;
        });
  }
  const DType element = kernels->widest().plan.keys.element;
  set_copy(kernels->load_q, engine_, {kind.target, kind.q, kind.compute, kind.dim});
  set_copy(kernels->load_k, engine_, {kind.target, kind.k, element, kind.dim, kind.key_scales});
  set_copy(kernels->load_v, engine_,
           {kind.target, kind.v, element, kind.value_dim, kind.value_scales});
  set_copy(kernels->store_out, engine_, {kind.target, kind.compute, kind.q, kind.value_dim});
  set_copy(kernels->copy_sums, engine_, {kind.target, kind.compute, kind.compute, kind.value_dim});
  if (base::dump_wanted(base::Dump::plan)) {
    base::dump(base::Dump::plan, "forward",
               to_text(kind.target) + "\n" + to_text(kernels->widest().plan) + "\n");
  }
  return kernels;
}

std::shared_ptr<const run::BackwardKernels> KernelSets::make(const BackwardKind& kind) const {
  const ForwardKind& forward = kind.forward;
  auto kernels = std::make_shared<run::BackwardKernels>();
  const plan::TilePlan plan = plan_of(forward, kind.vectors);
  kernels->plan = plan;
  kernels->query_factor = forms_.score.factor();
  kernels->mods = scratch_of(forward);
  if (forms_.derives) {
    kernels->mods += mod_scratch(plan, program_.derivative.graph, kind.derivative_facts);
  }
  const ir::Joint& derivative = program_.derivative;
  const ir::PerNode<plan::Dependence> on = plan::dependences(derivative.graph);
  kernels->separable =
      plan::separable_contributions(derivative.graph, on, derivative.contributions);
  kernels->keyed = plan::keyed_contributions(derivative.graph, on, derivative.contributions);
  const auto block = [&](run::LazyKernel<plan::BackwardKernelArgs>& kernel, bool masked,
                         bool exact) {
    set(kernel, engine_, [this, kind, plan, masked, exact] {
      return plan::BackwardKernelSpec{
          .plan = plan,
          .score = forms_.score,
          .score_facts = kind.forward.score_facts,
          .derivative = program_.derivative,
          .derivative_facts = kind.derivative_facts,
          .masked = masked,
          .mask = masked ? kind.forward.mask.graph(program_) : ir::Graph(),
          .mask_facts = kind.forward.mask_facts,
          .exact_nonfinite = exact};
    });
  };
  block(kernels->full, false, false);
  block(kernels->masked, true, false);
  block(kernels->exact_full, false, true);
  block(kernels->exact_masked, true, true);
  kernels->dk_spec = plan::plan_reduce(plan, forward.dim);
  kernels->dv_spec = plan::plan_reduce(plan, forward.value_dim);
  const auto sum = [&](run::LazyKernel<plan::ReduceArgs>& kernel, plan::ReduceSpec spec,
                       bool exact) {
    spec.skip_hidden = exact;
    set(kernel, engine_, [spec] { return spec; });
  };
  sum(kernels->sum_dk, kernels->dk_spec, false);
  sum(kernels->sum_dv, kernels->dv_spec, false);
  sum(kernels->exact_sum_dk, kernels->dk_spec, true);
  sum(kernels->exact_sum_dv, kernels->dv_spec, true);
  const std::int64_t row = plan::padded(plan, forward.dim);
  const std::int64_t value_row = plan::padded(plan, forward.value_dim);
  set_transpose(kernels->queries_to_lanes, engine_, transpose_spec(plan, forward.dim, row, false));
  set_transpose(kernels->dout_to_lanes, engine_,
                transpose_spec(plan, forward.value_dim, value_row, false));
  set_transpose(kernels->dq_to_rows, engine_, transpose_spec(plan, forward.dim, forward.dim, true));
  const auto copy = [&](run::CopyKernel& kernel, DType from, DType to, std::int64_t length) {
    set_copy(kernel, engine_, {forward.target, from, to, length});
  };
  copy(kernels->load_q, forward.q, plan.compute, forward.dim);
  copy(kernels->load_k, forward.k, plan.keys.element, forward.dim);
  copy(kernels->load_v, forward.v, plan.keys.element, forward.value_dim);
  copy(kernels->load_out, forward.q, plan.compute, forward.value_dim);
  const auto result = [&](DType type) { return kind.adds_up ? plan.compute : type; };
  copy(kernels->store_dq, plan.compute, result(forward.q), forward.dim);
  copy(kernels->store_dk, plan.compute, result(forward.k), forward.dim);
  copy(kernels->store_dv, plan.compute, result(forward.v), forward.value_dim);
  return kernels;
}

std::shared_ptr<const run::DecodeKernels> KernelSets::make(const DecodeKind& of) const {
  const ForwardKind& kind = of.forward;
  auto kernels = std::make_shared<run::DecodeKernels>();
  kernels->spec = {
      .target = kind.target,
      .compute = kind.compute,
      .key_type = kind.k,
      .value_type = kind.v,
      .key_scales = kind.key_scales,
      .value_scales = kind.value_scales,
      .dim = kind.dim,
      .value_dim = kind.value_dim,
      .key_block = plan::decode_block(kind.target, kind.compute, kind.k, kind.dim, of.rows),
      .rows = of.rows,
      .score = forms_.turned_score,
      .score_facts = kind.score_facts,
      .mask = forms_.turned_mask,
      .mask_facts = kind.mask_facts};
  const plan::DecodeKernelSpec& spec = kernels->spec;
  kernels->query_factor = forms_.score.factor();
  const auto frame_of = [&](const ir::Graph& graph, const plan::ModFacts& facts) {
    return plan::scratch_of(plan::plan_mod(graph, facts, {}, spec.mods, plan::Stages::nothing),
                            kind.target.lanes(kind.compute))
        .frame;
  };
  if (spec.score.kind != plan::ScoreForm::Kind::plain)
    kernels->frame += frame_of(spec.score.graph, spec.score_facts);
  if (!forms_.sees_all) kernels->frame += frame_of(spec.mask, spec.mask_facts);
  for (const bool masked : {false, true}) {
    set(masked ? kernels->masked : kernels->full, engine_, [spec, masked] {
      plan::DecodeKernelSpec one = spec;
      one.masked = masked;
      return one;
    });
  }
  set_copy(kernels->load_q, engine_, {kind.target, kind.q, kind.compute, kind.dim});
  set_copy(kernels->store_out, engine_, {kind.target, kind.compute, kind.q, kind.value_dim});
  return kernels;
}

template <class Kind, class Kernels>
std::shared_ptr<const Kernels> KernelSets::find_or_make(std::list<Known<Kind, Kernels>>& known,
                                                        const Kind& kind) {
  const auto find = [&]() -> std::shared_ptr<const Kernels> {
    const auto found = std::ranges::find(known, kind, &Known<Kind, Kernels>::kind);
    if (found == known.end()) return nullptr;
    found->last_asked = ++asked_;
    return found->kernels;
  };
  {
    const base::NoFork whole;
    const std::shared_lock lock(mutex_);
    if (auto found = find()) return found;
  }
  std::shared_ptr<const Kernels> made = make(kind);
  std::shared_ptr<const Kernels> superfluous;  // freed without the lock
  const base::NoFork whole;
  const std::unique_lock lock(mutex_);
  if (auto found = find()) return found;
  known.emplace_back(kind, made, ++asked_);
  if (known.size() > most_kinds) {
    const auto oldest = std::ranges::min_element(
        known, {}, [](const Known<Kind, Kernels>& one) { return one.last_asked.load(); });
    superfluous = std::move(oldest->kernels);
    known.erase(oldest);
  }
  return made;
}

std::shared_ptr<const run::ForwardKernels> KernelSets::forward(const ForwardKind& kind) {
  return find_or_make(forward_, kind);
}

std::shared_ptr<const run::DecodeKernels> KernelSets::decode(const DecodeKind& kind) {
  return find_or_make(decode_, kind);
}

std::shared_ptr<const run::BackwardKernels> KernelSets::backward(const BackwardKind& kind) {
  return find_or_make(backward_, kind);
}

}  // namespace treadle::backend::cpu
