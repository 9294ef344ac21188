// What a treadle::Layout holds.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/mask_term.h"
#include "base/hash.h"
#include "layout/layout.h"
#include "layout/selection.h"
#include "treadle/layout.h"

namespace treadle {

struct Layout::Held {
  struct Term {
    layout::Layout layout;
    std::shared_ptr<const backend::MaskTerm> mask = nullptr;  // null: the whole mask
  };
  std::vector<Term> terms;  // one per term of the mask, in their order; at least one
  base::Hash mask;          // the graph it was made for
  // The keys that were listed, if some were: then the mask alone does not say what is visible.
  std::optional<layout::Selection> listed = {};

  [[nodiscard]] const layout::Extent& extent() const { return terms.front().layout.extent(); }
  [[nodiscard]] std::vector<const layout::Layout*> layouts() const {
    std::vector<const layout::Layout*> all;
    for (const Term& term : terms) all.push_back(&term.layout);
    return all;
  }
};

}  // namespace treadle
