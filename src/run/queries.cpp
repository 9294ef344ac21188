// Which queries a tile holds.
#include "run/queries.h"

#include <algorithm>

namespace treadle::run {

Queries Queries::carve(Carver& carver, std::int64_t width) {
  return {carver.take<std::int32_t>(width), carver.take<std::int32_t>(width)};
}

void Queries::find(const layout::Layout& layout, std::int64_t tile, std::int64_t first,
                   std::int64_t count, std::int64_t width) const {
  const layout::Tiles& tiles = layout.tiles();
  const passes::Axis& axis = tiles.axis(tile);
  for (std::int64_t i = 0; i < width; ++i) {
    const std::int64_t query = first + std::min(i, count - 1);
    // Lines, which are most, without divisions.
    const std::int64_t position =
        axis.outer_count == 1 ? axis.low + query * axis.step : tiles.query(tile, query);
    positions[i] = static_cast<std::int32_t>(position);
    rows[i] = static_cast<std::int32_t>(position - layout.extent().queries.begin);
  }
}

}  // namespace treadle::run
