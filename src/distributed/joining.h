// Who joins what pieces of cut leaves find: the ranks of these pieces, some tiles each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/assignment.h"
#include "layout/order.h"

namespace treadle::distributed {

// Rows of queries of a batch entry and a key head that each rank has, if all have as many.
double mean_rows(const PlanCall& call, int ranks);

// Adds the pieces that join to those of a head group, which are sorted as an Assignment's and know their tiles. `share`:
// mean_rows() of the call; a rank that gets more than half as many states of a leaf shares them with others.
void add_joining(std::vector<Piece>& pieces, std::int64_t chunks,
                 const std::vector<layout::Tiles>& tiles,
                 std::span<const std::int64_t> tiles_per_leaf, double share);

}  // namespace treadle::distributed
