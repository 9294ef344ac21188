// TermFinder: the terms of a mask, found once for each set of values that its scalars have.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "backend/mask_term.h"

namespace treadle::backend::cpu {

class TermFinder {
 public:
  explicit TermFinder(const ir::Graph& mask);

  // None: the mask is one term. `memory` is bound to the mask's slots.
  MaskTerms find(std::span<const ConstView> memory);

 private:
  const ir::Graph& mask_;
  bool may_have_terms_, has_scalars_;
  std::mutex mutex_;
  std::optional<std::pair<base::Hash, MaskTerms>> last_;  // by the mask with its scalars' values
};

}  // namespace treadle::backend::cpu
