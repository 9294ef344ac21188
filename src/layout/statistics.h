// Numbers about layouts.
#pragma once

#include <cstdint>

#include "layout/build.h"
#include "layout/layout.h"

namespace treadle::layout {

// Visible pairs over all batches and heads, exactly: full runs are counted, partial ones evaluated.
std::int64_t visible_pairs(const Mask& mask, const Layout& layout, Executor& executor);

// The share of all pairs in blocks of `block` x `block` that hold a visible pair: what a kernel of
// square blocks works on.
double block_density(const Mask& mask, const Extent& extent, std::int64_t block,
                     Executor& executor);

// What a tile of so many queries costs per key: on AVX-512 a tile of one vector runs at half the
// speed of three.
struct TileWeights {
  int lanes = 16;
  double weight[4] = {30, 35, 49, 65};  // of tiles of 1, 2, 3 and 4 vectors

  // Of a tile that holds `size` queries.
  [[nodiscard]] double of(std::int64_t size) const;
};

// The sum over tiles of columns x weight, per batch and head.
double cost(const Layout& layout, const TileWeights& weights);

}  // namespace treadle::layout
