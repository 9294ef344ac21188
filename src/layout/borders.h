// Borders of a mask among keys: where comparisons that are linear in kv change.
//
// The next token under kv <= q && (q - kv < 1024 || kv < 4) sees three stretches of keys: between
// borders every comparison is settled, so a bound of each stretch is all that is left to do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "passes/bounds.h"

namespace treadle::layout {

// The comparisons of integers in a graph.
std::vector<ir::NodeId> comparisons(const ir::Graph& mask);

// Into `found`: keys inside the box where one of them becomes true or false for the first or the last query,
// ascending, each once. `bounds` has just been evaluated over the box, whose keys are neighbours.
void find_borders(std::vector<std::int64_t>& found, const ir::Graph& mask,
                  std::span<const ir::NodeId> comparisons, const passes::Bounds& bounds,
                  const passes::Box& box);

}  // namespace treadle::layout
