// The bound of one operation, from the bounds of its operands.
#pragma once

#include "ir/graph.h"
#include "passes/bound.h"

namespace treadle::passes {

// Of a node that is not a leaf; `bounds` holds those of its operands, `counts` are those of the
// box. A divisor that may be zero poisons it, and where(), && and || pass on what their rules say;
// that other operations are poisoned by their operands is left to the caller.
Bound bound_of_operation(const ir::Graph& graph, const ir::Node& node,
                         const ir::PerNode<Bound>& bounds, const Counts& counts);

}  // namespace treadle::passes
