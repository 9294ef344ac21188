// What the CPU backend prepares when compiled, and what it says about calls without running them.
#include "backend/cpu/cpu.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "backend/cpu/make_cpu.h"
#include "backend/cpu/mask_passes.h"
#include "base/dump.h"
#include "base/error.h"
#include "layout/build.h"
#include "passes/scalars.h"
#include "passes/terms.h"
#include "plan/capture_descriptors.h"
#include "plan/chunks.h"
#include "plan/mod_plan.h"
#include "run/backward.h"
#include "run/forward.h"
#include "run/poison.h"

namespace treadle::backend::cpu {

plan::Target target_named(const std::string& name) {
  plan::Target target = plan::host_target();
  if (name.empty() || name == target.name) return target;
  plan::Target wanted = plan::find_target(name);
  const std::vector<std::string> runnable = plan::runnable_targets();
  if (std::ranges::find(runnable, name) == runnable.end()) {
    base::fail("compile: the target is \"{}\", which this processor cannot run; it runs {}", name,
               fmt::join(runnable, ", "));
  }
  wanted.half_wide = wanted.avx512 && target.half_wide;
  wanted.wide_loads = wanted.avx512 && target.wide_loads;
  wanted.l1 = target.l1;
  wanted.l2 = target.l2;
  wanted.cores = target.cores;
  return wanted;
}

Cpu::Cpu(Program program, const std::string& target, Process& process)
    : process_(process),
      program_(std::move(program)),
      mask_(program_.mask.hash()),
      forms_(forms_of(program_)),
      target_(target_named(target)),
      terms_(program_.mask),
      kernels_(process.engine, program_, forms_) {}

Layout Cpu::layout(const Sizes& sizes, const Bindings& bound, const base::Workers& workers) const {
  const layout::Extent extent = sizes.extent();
  const auto chosen = choose_passes({program_.mask, bound.mask}, terms_.find(bound.mask), extent,
                                    plan::tile_weights(target_, sizes.compute), choices_, workers);
  auto held = std::make_shared<Layout::Held>();
  held->terms = build_terms(chosen, extent, workers);
  held->mask = mask_;
  return Layout(std::move(held));
}

Layout Cpu::listed_layout(layout::Selection listed, const Sizes& sizes, const Bindings& bound,
                          const base::Workers& workers) const {
  const layout::Tiles tiles = layout::tiles_for(listed, plan::tile_weights(target_, sizes.compute));
  auto held = std::make_shared<Layout::Held>();
  held->terms.push_back({layout::build({program_.mask, bound.mask}, listed, tiles, workers)});
  held->mask = mask_;
  held->listed = std::move(listed);
  if (base::dump_wanted(base::Dump::layout)) {
    base::dump(base::Dump::layout, "listed keys per tile",
               layout::to_text(held->terms.front().layout));
  }
  return Layout(std::move(held));
}

plan::ModScratch Cpu::most_scratch(const Sizes& sizes) const {
  const std::int64_t lanes = target_.lanes(sizes.compute);
  plan::ModScratch most = plan::most_scratch_of(forms_.score.graph, lanes);
  most += plan::most_scratch_of(program_.mask, lanes);
  return most;
}

std::int64_t Cpu::forward_scratch(const Sizes& sizes) const {
  const plan::TilePlan plan =
      plan::plan_tile(target_, sizes.compute, sizes.dim, sizes.value_dim, plan::most_vectors);
  return run::forward_scratch(plan, plan::tiles_per_group(plan, true), most_scratch(sizes),
                              passes::may_have_terms(program_.mask));
}

std::int64_t Cpu::backward_scratch(const Sizes& sizes) const {
  const auto contributions = static_cast<std::int64_t>(program_.derivative.contributions.size());
  // Of one chunk, or of several short ones.
  const std::int64_t keys = std::max(plan::longest_chunk(sizes.keys),
                                     std::min(sizes.keys.count(), plan::most_keys_of_chunks));
  plan::ModScratch mods = most_scratch(sizes);
  if (forms_.derives)
    mods += plan::most_scratch_of(program_.derivative.graph, target_.lanes(sizes.compute));
  // Tiles of fewer vectors come in larger groups.
  std::int64_t most = 0;
  for (int vectors = 1; vectors <= plan::most_vectors; ++vectors) {
    const plan::TilePlan plan =
        plan::plan_tile(target_, sizes.compute, sizes.dim, sizes.value_dim, vectors);
    // As many as there would be if every query were a tile.
    const std::int64_t queries = sizes.queries.count() * (sizes.key_batch == 1 ? sizes.batch : 1);
    const std::int64_t leaves = queries / plan::tiles_per_leaf(plan) + sizes.batch;
    most = std::max(most, run::backward_scratch(plan, keys, leaves, contributions, mods));
  }
  return most;
}

void Cpu::explain(const Request& call, const run::KeySource& keys, const Layout::Held& held,
                  const run::Poisoned& where) const {
  run::report({.q = call.inputs.q,
               .keys = keys,
               .scale = call.scale,
               .compute = call.sizes.compute,
               .score_mod = program_.score_mod,
               .score_memory = call.bound.score_mod,
               .mask = program_.mask,
               .mask_memory = call.bound.mask,
               .layout = &held.terms[where.term].layout},
              where);
}

std::vector<std::int64_t> Cpu::mask_captures(const Request& call, const ForwardKind& kind) const {
  if (kind.mask.term == nullptr) return plan::capture_descriptors(call.bound.mask);
  return plan::capture_descriptors(
      passes::memory_of(kind.mask.graph(program_), program_.mask.slots(), call.bound.mask));
}

ForwardKind Cpu::kind_of(const Request& call, const CallFacts& facts,
                         const Layout::Held::Term& term) const {
  return {.target = target_,
          .q = call.inputs.q.dtype(),
          .k = call.inputs.k.dtype(),
          .v = call.inputs.v.dtype(),
          .compute = call.sizes.compute,
          .key_scales = call.pages != nullptr && call.pages->k_scales != nullptr,
          .value_scales = call.pages != nullptr && call.pages->v_scales != nullptr,
          .dim = call.sizes.dim,
          .value_dim = call.sizes.value_dim,
          .score_facts = facts.score,
          .mask_facts = facts.mask,
          .sparse = plan::is_sparse(term.layout),
          .mask = {term.mask, facts.checked_term},
          .dropout = call.dropout != nullptr};
}

bool Cpu::decodes(const Request& call, const Layout::Held& held) const {
  const Layout::Held::Term& term = held.terms.front();
  return held.terms.size() == 1 && term.mask == nullptr &&
         plan::decodes(target_, call.sizes.compute, term.layout,
                       call.sizes.heads / call.sizes.key_heads);
}

DecodeKind Cpu::decode_kind(const Request& call, const CallFacts& turned,
                            const Layout::Held::Term& term, std::int64_t rows) const {
  DecodeKind kind{kind_of(call, turned, term), plan::RowBlocks(rows)};
  kind.forward.sparse = false;  // which its kernels do not look at
  return kind;
}

std::unique_ptr<const Backend> make_cpu(const Program& program, const std::string& target) {
  return std::make_unique<Cpu>(program, target, process());
}

std::int64_t kernels_made() {
  const jit::EngineStatistics seen = process().engine.statistics();
  return seen.compiled + seen.disk_hits;
}

std::int64_t release_memory() { return process().scratch.release(); }

}  // namespace treadle::backend::cpu
