// A graph with q and kv exchanged: what kernels with keys in the lanes evaluate.
#pragma once

#include "ir/graph.h"

namespace treadle::ir {

Graph exchanged(const Graph& graph);

}  // namespace treadle::ir
