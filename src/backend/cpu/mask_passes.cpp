// Takes the terms of a mask to layouts.
//
// In: a mask, its terms, lengths, weights of tiles. Out: a choice for each term, then its layout.
#include "backend/cpu/mask_passes.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/call_facts.h"
#include "base/dump.h"
#include "ir/print.h"
#include "layout/build.h"
#include "layout/choice_text.h"
#include "layout/shared_choices.h"

namespace treadle::backend::cpu {
namespace {

void show(const std::vector<ChosenPass>& passes) {
  if (!base::dump_wanted(base::Dump::plan)) return;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const ChosenPass& pass = passes[i];
    base::dump(base::Dump::plan, title_of(passes, i),
               ir::to_text(pass.term ? pass.term->mask : pass.mask.graph) + '\n' +
                   layout::to_text(pass.chosen->candidates));
  }
}

void share_tiles(std::vector<ChosenPass>& passes, const layout::TileWeights& weights) {
  std::vector<std::vector<layout::Choice>> candidates;
  for (ChosenPass& pass : passes) {
    pass.choice = pass.chosen->best();
    candidates.push_back(pass.chosen->candidates);
  }
  const layout::Extent& extent = passes.front().chosen->extent;
  // Costs for different lengths cannot be compared.
  if (std::ranges::any_of(passes, [&](const auto& p) { return p.chosen->extent != extent; }))
    return;
  const std::vector<layout::Choice> shared = layout::shared_choices(candidates, extent, weights);
  for (std::size_t i = 0; i < passes.size(); ++i) passes[i].choice = shared[i];
}

}  // namespace

std::string title_of(const std::vector<ChosenPass>& passes, std::size_t pass) {
  const layout::Extent& extent = passes[pass].chosen->extent;
  const std::string term =
      passes.size() == 1 ? "" : fmt::format(", term {} of {}", pass + 1, passes.size());
  return fmt::format("mask{}, costed for {} queries x {} keys", term, extent.queries.count(),
                     extent.keys.count());
}

std::vector<ChosenPass> choose_passes(const layout::Mask& mask, const MaskTerms& terms,
                                      const layout::Extent& extent,
                                      const layout::TileWeights& weights, KeptChoices& kept,
                                      const base::Workers& workers) {
  std::vector<ChosenPass> passes;
  const auto add = [&](const ir::Graph& graph, std::shared_ptr<const MaskTerm> term) {
    layout::Mask own{graph, backend::memory_of(graph, mask.graph, mask.memory)};
    auto chosen = kept.find(own, extent, weights, workers);
    passes.push_back({std::move(own), std::move(term), std::move(chosen)});
  };
  for (const std::shared_ptr<const MaskTerm>& term : terms)
    add(term->graph(look_at(*term, mask.graph, mask.memory, extent, {}).checked), term);
  if (terms.empty()) add(mask.graph, nullptr);
  share_tiles(passes, weights);
  show(passes);
  return passes;
}

std::vector<Layout::Held::Pass> build_passes(const std::vector<ChosenPass>& chosen,
                                             const layout::Extent& extent,
                                             const base::Workers& workers) {
  std::vector<Layout::Held::Pass> passes;
  for (const ChosenPass& pass : chosen) {
    const layout::Tiles tiles(pass.choice.order, extent.queries, pass.choice.height);
    passes.push_back({layout::build(pass.mask, extent, tiles, workers), pass.term});
    if (base::dump_wanted(base::Dump::layout))
      base::dump(base::Dump::layout, "runs per tile", to_text(passes.back().layout));
  }
  return passes;
}

}  // namespace treadle::backend::cpu
