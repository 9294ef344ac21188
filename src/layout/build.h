// Build: from a mask to its Layout, in parallel. The result is the same for any number of threads.
//
//   const Extent extent{.batch = 1, .heads = 8, .queries = 4096, .keys = 4096};
//   Layout layout = build(mask, extent, Tiles({}, extent.queries, 48), workers);
#pragma once

#include <span>
#include <vector>

#include "base/parallel.h"
#include "ir/graph.h"
#include "layout/layout.h"
#include "layout/selection.h"
#include "treadle/view.h"

namespace treadle::layout {

// A mask and the memory of its captures, by slot.
struct Mask {
  // A bool that does not mention the score: whether a pair is visible. If there is a second one, a
  // pair that poisons it fails.
  ir::Graph graph;
  std::vector<ConstView> memory;
};

// Throws treadle::Error for a graph that is no mask or memory that does not fit it.
void check_mask(const Mask& mask);

Layout build(const Mask& mask, const Extent& extent, const Tiles& tiles,
             const base::Workers& workers);

// Only keys of the selection; no tile may cross a border of its query blocks (Order::Kind::blocks).
Layout build(const Mask& mask, const Selection& selection, const Tiles& tiles,
             const base::Workers& workers);

}  // namespace treadle::layout
