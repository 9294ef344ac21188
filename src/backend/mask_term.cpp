// Terms with what they need to be looked at.
#include "backend/mask_term.h"

#include <utility>

#include "ir/builder.h"
#include "passes/terms.h"

namespace treadle::backend {
namespace {

ir::Graph with_whole(const ir::Graph& term, const ir::Graph& whole) {
  ir::Builder make;
  const ir::NodeId first = make.copy(term)[term.output()];
  const ir::NodeId second = make.copy(whole)[whole.output()];
  return make.finish({first, second});
}

}  // namespace

MaskTerm::MaskTerm(ir::Graph term, const ir::Graph& whole)
    : mask(std::move(term)), checked(with_whole(mask, whole)), hash(checked.hash()) {}

MaskTerms terms_of(const ir::Graph& mask, std::span<const ConstView> memory) {
  MaskTerms terms;
  std::vector<ir::Graph> found = passes::terms(mask, memory);
  if (found.size() < 2) return terms;
  for (ir::Graph& term : found)
    terms.push_back(std::make_shared<const MaskTerm>(std::move(term), mask));
  return terms;
}

}  // namespace treadle::backend
