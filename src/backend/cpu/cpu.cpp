// What the CPU backend prepares when compiled, and what it says about calls without running them.
#include "backend/cpu/cpu.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "backend/cpu/make_cpu.h"
#include "backend/cpu/mask_passes.h"
#include "backend/cpu/room.h"
#include "base/dump.h"
#include "base/error.h"
#include "layout/build.h"
#include "passes/scalars.h"
#include "plan/capture_descriptors.h"
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

Cpu::~Cpu() = default;

Layout Cpu::layout(const Sizes& sizes, const Bindings& bound, const base::Workers& workers) const {
  const auto room = rooms_.take([&] { return std::make_unique<Room>(*this); });
  if (room->layouts.can_be_one_tile(sizes, bound))
    return room->layouts.layout(sizes, bound, workers);
  return built_layout(sizes, bound, workers);
}

Layout Cpu::built_layout(const Sizes& sizes, const Bindings& bound,
                         const base::Workers& workers) const {
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
  ForwardKind kind;
  kind.target = target_;
  kind.sparse = plan::is_sparse(term.layout);
  kind.mask = {term.mask, facts.checked_term};
  describe(call, facts, kind);
  return kind;
}

void Cpu::describe(const Request& call, const CallFacts& facts, ForwardKind& kind) const {
  kind.q = call.inputs.q.dtype();
  kind.k = call.inputs.k.dtype();
  kind.v = call.inputs.v.dtype();
  kind.compute = call.sizes.compute;
  kind.key_scales = call.pages != nullptr && call.pages->k_scales != nullptr;
  kind.value_scales = call.pages != nullptr && call.pages->v_scales != nullptr;
  kind.dim = call.sizes.dim;
  kind.value_dim = call.sizes.value_dim;
  kind.score_facts = facts.score;
  kind.mask_facts = facts.mask;
  kind.dropout = call.dropout != nullptr;
}

void Cpu::describe(const Request& call, const CallFacts& turned, std::int64_t rows,
                   DecodeKind& kind) const {
  describe(call, turned, kind.forward);
  kind.rows = plan::RowBlocks(rows);
}

bool Cpu::decodes(const Request& call, const Layout::Held& held) const {
  const Layout::Held::Term& term = held.terms.front();
  return held.terms.size() == 1 && term.mask == nullptr &&
         plan::decodes(target_, call.sizes.compute, term.layout,
                       call.sizes.heads / call.sizes.key_heads);
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
