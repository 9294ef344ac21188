// UnionForm: a bool of a graph as a union of conjunctions.
//
//   expand(root, false)     "a && (b || !c)"  ->  {{a, b}, {a, !c}}
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace treadle::passes {

// All literals are true, each is a node of the builder.
using Conjunction = std::set<ir::NodeId>;
using Union = std::vector<Conjunction>;

// By the expression, not by when it was made, so that the way a mask is written does not show.
using Rank = std::pair<std::uint64_t, std::uint64_t>;

class UnionForm {
 protected:
  // Nothing if it would be too long. Comparisons of integers are less or at most, equal or not.
  std::optional<Union> expand(ir::NodeId id, bool negated);
  ir::NodeId negation(ir::NodeId literal);
  // No contradictions, nothing that another one implies, nothing twice; in the order of ranks.
  Union without_redundant(Union all);

  Rank rank(ir::NodeId id);
  static Rank rank_of(const ir::Graph& graph) { return {graph.hash().high, graph.hash().low}; }
  std::vector<ir::NodeId> ordered(const Conjunction& conjunction);
  std::vector<Rank> ranks(const Conjunction& conjunction);

  ir::Builder make_;

 private:
  std::optional<Union> expand_comparison(ir::Op op, ir::NodeId a, ir::NodeId b);
  static std::optional<Union> all_of(std::optional<Union> a, std::optional<Union> b);
  static std::optional<Union> any_of(std::optional<Union> a, std::optional<Union> b);

  std::map<ir::NodeId, Rank> ranks_;
};

}  // namespace treadle::passes
