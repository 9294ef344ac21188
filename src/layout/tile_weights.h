// TileWeights: what a tile costs per key, by its number of vectors. The cost model for choosing
// query orders and for cutting work into tasks.
//
//   weights.of(40)          // three vectors of 16 lanes: 49
//   cost(layout, weights)   // 49 for each key of each tile of three vectors, ...
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

  // The most that a tile has.
  [[nodiscard]] int vectors() const { return static_cast<int>(weight.size()); }
  // Of a tile that holds `size` queries. One that holds more than vectors() do is handled in parts.
  [[nodiscard]] double of(std::int64_t size) const;
};

// The height at which tiles of `queries` neighbours, the last of which is cut, cost least.
std::int64_t best_height(std::int64_t queries, const TileWeights& weights);

// The sum over tiles of columns x weight, per batch and head.
double cost(const Layout& layout, const TileWeights& weights);

}  // namespace treadle::layout
