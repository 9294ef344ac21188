// Choose: the query order and tile height that make a mask cheapest.
//
//   Choice choice = choose_order(mask, extent, weights, workers);
//   Tiles tiles(choice.order, extent.queries, choice.height);
//   Layout layout = build(mask, extent, tiles, workers);
//
// Candidates are what the graph suggests: residue classes for its moduli, blocks for its divisors,
// rectangles where it has both of one number, and identity, each in all heights that have a weight.
// Each is costed on tiles spread over the whole mask (all of them when they are few), so choosing
// costs a fraction of building. Costs are the same for any number of threads.
#pragma once

#include <vector>

#include "layout/build.h"
#include "layout/tile_weights.h"

namespace treadle::layout {

// What a cost is made of, over all tiles; columns are keys of a tile.
struct Work {
  double columns = 0, tiles = 0, runs = 0, pieces = 0;
};

struct Choice {
  Order order;
  std::int64_t height = 1;
  double cost = 0;         // as cost() of layout/tile_weights.h gives it for the whole layout,
  bool estimated = false;  // or about that, when only some tiles were looked at
  Work work = {};
};

// All candidates, uncosted, identity first.
std::vector<Choice> candidates(const ir::Graph& mask, const Extent& extent,
                               const TileWeights& weights);

// All candidates with their costs, best first. Those that looked hopeless on a few tiles come last.
std::vector<Choice> costed_candidates(const Mask& mask, const Extent& extent,
                                      const TileWeights& weights, const base::Workers& workers);

// The first of them.
Choice choose_order(const Mask& mask, const Extent& extent, const TileWeights& weights,
                    const base::Workers& workers);

}  // namespace treadle::layout
