// Weighs tiles, and with them whole layouts.
//
// In: the number of queries of a tile, or a layout. Out: its cost.
#include "layout/tile_weights.h"

#include <algorithm>

namespace treadle::layout {

double TileWeights::of(std::int64_t size) const {
  const std::int64_t needed = std::max<std::int64_t>((size + lanes - 1) / lanes, 1);
  if (needed <= vectors()) return weight[static_cast<std::size_t>(needed - 1)];
  return weight.back() * static_cast<double>(needed) / vectors();
}

std::int64_t best_height(std::int64_t queries, const TileWeights& weights) {
  std::int64_t best = 0;
  double least = 0;
  // From the tallest: fewer tiles read a key less often, so they win a draw.
  for (int vectors = weights.vectors(); vectors >= 1; --vectors) {
    const std::int64_t height = std::int64_t{vectors} * weights.lanes;
    const std::int64_t whole = queries / height;
    const double sum = static_cast<double>(whole) * weights.of(height) +
                       (queries % height == 0 ? 0 : weights.of(queries % height));
    if (best == 0 || sum < least) {
      best = height;
      least = sum;
    }
  }
  return std::min(best, queries);
}

double tile_cost(std::span<const Run> runs, std::int64_t size, const TileWeights& weights) {
  std::int64_t columns = 0;
  std::int64_t pieces = 0;
  for (const Run& run : runs) {
    columns += run.length();
    pieces += run.count();
  }
  const double besides = weights.per_tile + weights.per_run * static_cast<double>(runs.size()) +
                         weights.per_piece * static_cast<double>(pieces);
  return static_cast<double>(columns) * weights.of(size) + besides * weights.weight.front();
}

double cost(const Layout& layout, const TileWeights& weights) {
  double sum = 0;
  for (std::int64_t b = 0; b < (layout.per_batch() ? layout.extent().batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? layout.extent().heads : 1); ++h) {
      for (std::int64_t tile = 0; tile < layout.tiles().count(); ++tile) {
        sum += tile_cost(layout.runs(b, h, tile), layout.tiles().size(tile), weights);
      }
    }
  }
  return sum;
}

}  // namespace treadle::layout
