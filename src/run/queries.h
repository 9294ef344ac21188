// The queries of a tile: positions, what mods see as q, and rows, where they lie in memory.
#pragma once

#include <cstdint>

#include "layout/layout.h"
#include "run/scratch.h"

namespace treadle::run {

struct Queries {
  std::int32_t* positions = nullptr;  // [width]; the last query fills lanes without one
  std::int32_t* rows = nullptr;       // [width], the same

  static Queries carve(Carver& carver, std::int64_t width);

  // Those from `first` on of a layout's tile, `count` of them.
  void find(const layout::Layout& layout, std::int64_t tile, std::int64_t first, std::int64_t count,
            std::int64_t width) const;
};

}  // namespace treadle::run
