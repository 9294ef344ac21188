// A graph is legal iff
//   - operands come before their users, and there is at least one output,
//   - every node has as many operands as its row in ops.def says, a load one integer per dimension,
//   - operand and result types are what the row's rule says, exactly (no promotion is left to do),
//   - no integer division has the constant 0 as its divisor,
//   - no two nodes are equal, every node is used, and there is one NaN,
//   - slots are named apart and stand in the order in which the nodes first read them.
// Anything else is a mistake of ours: verify throws base::InternalError and prints the graph.
#pragma once

#include "ir/graph.h"

namespace treadle::ir {

void verify(const Graph& graph);

}  // namespace treadle::ir
