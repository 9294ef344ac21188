// Takes the terms of a mask to layouts.
//
// In: a mask, its terms, lengths, weights of tiles. Out: a choice for each term, then its layout.
#include "backend/cpu/mask_passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "backend/cpu/call_facts.h"
#include "base/dump.h"
#include "ir/print.h"
#include "layout/build.h"
#include "layout/choice_text.h"
#include "layout/shared_choices.h"
#include "passes/scalars.h"

namespace treadle::backend::cpu {
namespace {

void show(const ChosenPasses& passes) {
  if (!base::dump_wanted(base::Dump::plan)) return;
  for (std::size_t i = 0; i < passes.terms.size(); ++i) {
    const ChosenTerm& term = passes.terms[i];
    base::dump(
        base::Dump::plan, title_of(passes, i),
        ir::to_text(term.term ? term.term->mask : term.mask.graph) + '\n' + text_of(passes, i));
  }
}

void share_tiles(ChosenPasses& passes, const layout::TileWeights& weights) {
  const layout::Extent& extent = passes.terms.front().chosen->extent;
  std::vector<std::vector<layout::Choice>> candidates;
  bool comparable = true;
  for (ChosenTerm& term : passes.terms) {
    term.choice = term.chosen->best();
    candidates.push_back(term.chosen->candidates);
    comparable = comparable && term.chosen->extent == extent;
  }
  if (comparable) {
    auto term = passes.terms.begin();
    for (const layout::SharedPass& pass : layout::shared_choices(candidates, extent, weights)) {
      for (const layout::Choice& choice : pass.terms) (term++)->choice = choice;
      passes.costs.push_back({pass.cost, pass.apart});
    }
  }
  for (std::size_t i = 1; i < passes.terms.size(); ++i) {
    const ChosenTerm& before = passes.terms[i - 1];
    ChosenTerm& term = passes.terms[i];
    term.pass = before.pass + (layout::share_a_pass(before.choice, term.choice) ? 0 : 1);
  }
}

// "term 1", "terms 1 and 3": those that share a pass with this one.
std::string neighbours_of(const ChosenPasses& passes, std::size_t term) {
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < passes.terms.size(); ++i) {
    if (i != term && passes.terms[i].pass == passes.terms[term].pass)
      numbers.push_back(std::to_string(i + 1));
  }
  if (numbers.empty()) return "";
  const std::string last = numbers.back();
  numbers.pop_back();
  return numbers.empty() ? "term " + last
                         : fmt::format("terms {} and {}", fmt::join(numbers, ", "), last);
}

// What else there is to say about a term that was taken.
std::string pass_of(const ChosenPasses& passes, std::size_t term) {
  if (passes.terms.size() == 1) return "";
  const std::string neighbours = neighbours_of(passes, term);
  if (neighbours.empty()) return ", a pass of its own";
  const std::size_t pass = passes.terms[term].pass;
  if (passes.costs.empty()) return fmt::format(", one pass with {}", neighbours);
  bool estimated = false;
  for (const ChosenTerm& each : passes.terms)
    estimated = estimated || (each.pass == pass && each.choice.estimated);
  return fmt::format(", one pass with {0}: cost {1}{2:.0f}, apart {1}{3:.0f}", neighbours,
                     estimated ? "~" : "", passes.costs[pass].cost, passes.costs[pass].apart);
}

}  // namespace

std::string title_of(const ChosenPasses& passes, std::size_t term) {
  const layout::Extent& extent = passes.terms[term].chosen->extent;
  const std::size_t count = passes.terms.size();
  return fmt::format("mask{}, costed for {} queries x {} keys",
                     count == 1 ? "" : fmt::format(", term {} of {}", term + 1, count),
                     extent.queries.count(), extent.keys.count());
}

std::string text_of(const ChosenPasses& passes, std::size_t term) {
  const ChosenTerm& chosen = passes.terms[term];
  return fmt::format("{}taken: {}{}\n", layout::to_text(chosen.chosen->candidates),
                     layout::name_of(chosen.choice), pass_of(passes, term));
}

ChosenPasses choose_passes(const layout::Mask& mask, const MaskTerms& terms,
                           const layout::Extent& extent, const layout::TileWeights& weights,
                           KeptChoices& kept, const base::Workers& workers) {
  ChosenPasses passes;
  const auto add = [&](const ir::Graph& graph, std::shared_ptr<const MaskTerm> term) {
    layout::Mask own{graph, passes::memory_of(graph, mask.graph.slots(), mask.memory)};
    auto chosen = kept.find(own, extent, weights, workers);
    passes.terms.push_back({std::move(own), std::move(term), std::move(chosen)});
  };
  for (const std::shared_ptr<const MaskTerm>& term : terms)
    add(term->graph(look_at(*term, mask.graph, mask.memory, extent, {}).checked), term);
  if (terms.empty()) add(mask.graph, nullptr);
  share_tiles(passes, weights);
  show(passes);
  return passes;
}

std::vector<Layout::Held::Term> build_terms(const ChosenPasses& chosen,
                                            const layout::Extent& extent,
                                            const base::Workers& workers) {
  std::vector<Layout::Held::Term> terms;
  for (const ChosenTerm& term : chosen.terms) {
    const layout::Tiles tiles(term.choice.order, extent.queries, term.choice.height);
    terms.push_back({layout::build(term.mask, extent, tiles, workers), term.term});
    if (base::dump_wanted(base::Dump::layout))
      base::dump(base::Dump::layout, "runs per tile", to_text(terms.back().layout));
  }
  return terms;
}

}  // namespace treadle::backend::cpu
