// TileWeights: what a tile costs per key, by its number of vectors, and what it costs besides. The
// cost model for choosing query orders and for cutting work into tasks.
//
//   weights.of(40)                   // three vectors of 16 lanes: 49
//   tile_cost(runs, size, weights)   // 49 for each key of the runs, and for the tile, runs, pieces
//   cost(layout, weights)            // of all tiles together
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.h"

namespace treadle::layout {

// Only the ratios matter. As measured on AVX-512, where a tile of one vector runs at half the speed
// of three; src/plan/tile_plan.cpp has the weights of other machines.
struct TileWeights {
  int lanes = 16;
  std::vector<double> weight = {30, 35, 49};  // of tiles of 1, 2, ... vectors
  // What else costs time, counted in keys of a tile of one vector: reading the queries of a tile and
  // writing its results; calling a kernel for a run; finding and copying a piece of keys.
  double per_tile = 24, per_run = 1, per_piece = 0.25;
  // Of a tile, leaving its sums to another pass and finding them there.
  double per_pass = 24;

  // The most that a tile has.
  [[nodiscard]] int vectors() const { return static_cast<int>(weight.size()); }
  // Of a tile that holds `size` queries. One that holds more than vectors() do is handled in parts.
  [[nodiscard]] double of(std::int64_t size) const;
};

// The height at which tiles of `queries` neighbours, the last of which is cut, cost least.
std::int64_t best_height(std::int64_t queries, const TileWeights& weights);

// Of a tile that holds `size` queries, with these runs.
double tile_cost(std::span<const Run> runs, std::int64_t size, const TileWeights& weights);

// The sum over tiles, per batch and head.
double cost(const Layout& layout, const TileWeights& weights);

}  // namespace treadle::layout
