// TermFinder: the terms of a mask, found once for each set of values that its scalars have.
#pragma once

#include <span>

#include "backend/mask_term.h"
#include "base/kept.h"

namespace treadle::backend::cpu {

class TermFinder {
 public:
  explicit TermFinder(const ir::Graph& mask);

  // None: the mask is one term. `memory` is bound to the mask's slots.
  MaskTerms find(std::span<const ConstView> memory);

 private:
  const ir::Graph& mask_;
  bool may_have_terms_, has_scalars_;
  base::Kept<base::Hash, MaskTerms> kept_{16};  // by the mask with its scalars' values
};

}  // namespace treadle::backend::cpu
