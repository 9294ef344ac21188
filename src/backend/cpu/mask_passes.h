// The passes of a mask: for each of its terms (passes/terms.h) a query order and a tile height, such
// that all together are cheapest. Neighbouring terms with the same tiles share a pass.
//
//   const auto chosen = choose_passes(mask, terms, extent, weights, kept, workers);
//   std::vector<Layout::Held::Term> terms = build_terms(chosen, extent, workers);
//
// TREADLE_DUMP=plan prints the first step, TREADLE_DUMP=layout the second.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/kept_choices.h"
#include "backend/held_layout.h"
#include "backend/mask_term.h"

namespace treadle::backend::cpu {

struct ChosenTerm {
  layout::Mask mask;                     // as it has to be looked at
  std::shared_ptr<const MaskTerm> term;  // null: the whole mask
  std::shared_ptr<const Chosen> chosen;
  // The best of the candidates, unless sharing tiles with a neighbouring term makes both cheaper.
  layout::Choice choice = {};
  std::size_t pass = 0;  // which one looks at it, from 0
};

// Of a pass, all its terms together, and of passes of their own for them, each as it is best.
struct PassCost {
  double cost = 0, apart = 0;
};

struct ChosenPasses {
  std::vector<ChosenTerm> terms;  // in their order
  // One for each pass; none if candidates were costed for different lengths, which cannot be
  // compared. Then every term has the best of its candidates.
  std::vector<PassCost> costs = {};
};

// "mask, term 1 of 2, costed for 8192 queries x 8192 keys"
std::string title_of(const ChosenPasses& passes, std::size_t term);
// What was looked at for a term, and what was taken.
std::string text_of(const ChosenPasses& passes, std::size_t term);

// No terms: one pass over the whole mask.
ChosenPasses choose_passes(const layout::Mask& mask, const MaskTerms& terms,
                           const layout::Extent& extent, const layout::TileWeights& weights,
                           KeptChoices& kept, const base::Workers& workers);

// One for each term.
std::vector<Layout::Held::Term> build_terms(const ChosenPasses& chosen,
                                            const layout::Extent& extent,
                                            const base::Workers& workers);

}  // namespace treadle::backend::cpu
