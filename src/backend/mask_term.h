// A term of a mask (passes/terms.h): what one pass of a call looks at.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/hash.h"
#include "ir/graph.h"
#include "treadle/view.h"

namespace treadle::backend {

struct MaskTerm {
  ir::Graph mask;  // true where the term shows the pair
  // The same, and as a second output the whole mask: where a read may leave its buffer, it is the
  // whole mask that says whether a pair fails. A term may read what the whole mask does not ask for.
  ir::Graph checked;
  base::Hash hash;

  MaskTerm(ir::Graph term, const ir::Graph& whole);

  [[nodiscard]] const ir::Graph& graph(bool is_checked) const {
    return is_checked ? checked : mask;
  }
};

// The terms of a mask whose slots this memory is bound to; none if it is one.
using MaskTerms = std::vector<std::shared_ptr<const MaskTerm>>;
MaskTerms terms_of(const ir::Graph& mask, std::span<const ConstView> memory);

}  // namespace treadle::backend
