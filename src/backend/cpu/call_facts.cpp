// Facts about each graph that a call evaluates; about the others there is nothing to check.
#include "backend/cpu/call_facts.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "ir/exchange.h"
#include "passes/scalars.h"

namespace treadle::backend::cpu {
namespace {

bool is_true(const ir::Graph& mask) {
  const ir::Node& node = mask[mask.output()];
  return node.op == ir::Op::constant && node.boolean();
}

plan::ModFacts nothing_to_check() { return {.reads = plan::Reads::proven}; }

// Where each slot of a graph is among those of another, by name.
std::vector<std::size_t> places_of(const ir::Graph& graph, const ir::Graph& other) {
  std::vector<std::size_t> places;
  for (const ir::Slot& slot : graph.slots()) {
    const auto slots = other.slots();
    const auto found = std::ranges::find(slots, slot.name, &ir::Slot::name);
    if (found == slots.end()) base::internal_error("the program has no slot {}", slot.name);
    places.push_back(static_cast<std::size_t>(found - slots.begin()));
  }
  return places;
}

void pick(const std::vector<ConstView>& from, std::span<const std::size_t> places,
          std::vector<ConstView>& to) {
  to.clear();
  for (const std::size_t place : places) to.push_back(from[place]);
}

}  // namespace

Forms forms_of(const Program& program) {
  Forms forms;
  forms.score = plan::score_form(program.score_mod);
  forms.score_slots = places_of(forms.score.graph, program.score_mod);
  forms.sees_all = is_true(program.mask);
  forms.turned_score = forms.score;
  forms.turned_score.graph = ir::exchanged(forms.score.graph);
  forms.turned_mask = ir::exchanged(program.mask);
  forms.derives = forms.score.kind == plan::ScoreForm::Kind::general ||
                  !program.derivative.contributions.empty();
  return forms;
}

std::vector<ConstView> score_memory(const Forms& forms, const Bindings& bound) {
  std::vector<ConstView> memory;
  for (const std::size_t slot : forms.score_slots) memory.push_back(bound.score_mod[slot]);
  return memory;
}

TurnedMods::TurnedMods(const Program& program, const Forms& forms)
    : facts{nothing_to_check(), nothing_to_check(), nothing_to_check()},
      forms_(forms),
      score_slots_(places_of(forms.turned_score.graph, program.score_mod)),
      mask_slots_(places_of(forms.turned_mask, program.mask)),
      score_(forms.turned_score.graph),
      mask_(forms.turned_mask) {}

void TurnedMods::find(const Bindings& bound, const layout::Extent& extent) {
  const layout::Extent turned{extent.batch,   extent.heads,   extent.keys,
                              extent.queries, extent.first_b, extent.first_h};
  if (forms_.score.kind != plan::ScoreForm::Kind::plain) {
    pick(bound.score_mod, score_slots_, score_memory);
    facts.score = score_.find(score_memory, turned, {});
  }
  if (!forms_.sees_all) {
    pick(bound.mask, mask_slots_, mask_memory);
    facts.mask = mask_.find(mask_memory, turned, {});
  }
}

LookedAtTerm look_at(const MaskTerm& term, const ir::Graph& mask,
                     const std::vector<ConstView>& memory, const layout::Extent& extent,
                     const layout::Order& order) {
  const auto facts_of = [&](const ir::Graph& graph) {
    return plan::find_facts(graph, passes::memory_of(graph, mask.slots(), memory), extent, order);
  };
  const auto is_checked = [](const plan::ModFacts& facts) {
    return facts.reads == plan::Reads::checked;
  };
  LookedAtTerm looked{.checked = false, .facts = facts_of(term.mask)};
  if (!is_checked(looked.facts) && !is_checked(plan::find_facts(mask, memory, extent, order)))
    return looked;
  looked.checked = true;
  looked.facts = facts_of(term.checked);
  looked.facts.reads = plan::Reads::checked;
  return looked;
}

CallFacts find_forward_facts(const Program& program, const Forms& forms, const Bindings& bound,
                             const layout::Layout& layout, const MaskTerm* term) {
  CallFacts facts{nothing_to_check(), nothing_to_check(), nothing_to_check()};
  const layout::Order& order = layout.tiles().order();
  if (forms.score.kind != plan::ScoreForm::Kind::plain) {
    facts.score =
        plan::find_facts(forms.score.graph, score_memory(forms, bound), layout.extent(), order);
  }
  if (term != nullptr) {
    const LookedAtTerm looked = look_at(*term, program.mask, bound.mask, layout.extent(), order);
    facts.checked_term = looked.checked;
    facts.mask = looked.facts;
  } else if (!forms.sees_all) {
    facts.mask = plan::find_facts(program.mask, bound.mask, layout.extent(), order);
  }
  return facts;
}

CallFacts find_backward_facts(const Program& program, const Forms& forms, const Bindings& bound,
                              const layout::Layout& layout, const MaskTerm* term) {
  CallFacts facts = find_forward_facts(program, forms, bound, layout, term);
  if (forms.derives) {
    facts.derivative = plan::find_facts(program.derivative.graph, bound.derivative, layout.extent(),
                                        layout.tiles().order());
  }
  return facts;
}

}  // namespace treadle::backend::cpu
