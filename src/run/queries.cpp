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
  if (axis.outer_count == 1) {  // a line, as most are
    const auto low = static_cast<std::int32_t>(axis.low + first * axis.step);
    const auto step = static_cast<std::int32_t>(axis.step);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(count); ++i)
      positions[i] = low + i * step;
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      positions[i] = static_cast<std::int32_t>(tiles.query(tile, first + i));
  }
  std::fill(positions + count, positions + width, positions[count - 1]);
  if (tiles.packed()) {
    const auto row = static_cast<std::int32_t>(tiles.row(tile, first));
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(count); ++i) rows[i] = row + i;
    std::fill(rows + count, rows + width, rows[count - 1]);
    return;
  }
  const auto begin = static_cast<std::int32_t>(layout.extent().queries.begin);
  for (std::int64_t i = 0; i < width; ++i) rows[i] = positions[i] - begin;
}

}  // namespace treadle::run
