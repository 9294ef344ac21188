// Scalars as numbers, and the terms of the mask that this is then.
#include "backend/cpu/term_finder.h"

#include <algorithm>
#include <optional>

#include "passes/scalars.h"
#include "passes/terms.h"

namespace treadle::backend::cpu {

TermFinder::TermFinder(const ir::Graph& mask)
    : mask_(mask),
      may_have_terms_(passes::may_have_terms(mask)),
      has_scalars_(
          std::ranges::any_of(mask.slots(), [](const ir::Slot& s) { return s.rank == 0; })) {}

MaskTerms TermFinder::find(std::span<const ConstView> memory) {
  if (!may_have_terms_) return {};
  base::Hash now;
  if (has_scalars_) {
    const std::optional<ir::Graph> known = passes::with_scalars(mask_, memory);
    if (!known) return {};
    now = known->hash();
  }
  return kept_.get(now, [&] { return terms_of(mask_, memory); });
}

}  // namespace treadle::backend::cpu
