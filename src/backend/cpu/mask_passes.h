// The passes of a mask: one for each of its terms (passes/terms.h), each with the query order and
// the tile height that make it cheapest.
//
//   const auto chosen = choose_passes(mask, terms, extent, weights, kept, workers);
//   std::vector<Layout::Held::Pass> passes = build_passes(chosen, extent, workers);
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

struct ChosenPass {
  layout::Mask mask;                     // as it has to be looked at
  std::shared_ptr<const MaskTerm> term;  // null: the whole mask
  std::shared_ptr<const Chosen> chosen;
  // The best of the candidates, unless sharing tiles with a neighbouring term makes both cheaper.
  layout::Choice choice = {};
};

// "mask, term 1 of 2, costed for 8192 queries x 8192 keys"
std::string title_of(const std::vector<ChosenPass>& passes, std::size_t pass);

// No terms: one pass over the whole mask.
std::vector<ChosenPass> choose_passes(const layout::Mask& mask, const MaskTerms& terms,
                                      const layout::Extent& extent,
                                      const layout::TileWeights& weights, KeptChoices& kept,
                                      const base::Workers& workers);

std::vector<Layout::Held::Pass> build_passes(const std::vector<ChosenPass>& chosen,
                                             const layout::Extent& extent,
                                             const base::Workers& workers);

}  // namespace treadle::backend::cpu
