// Whether a layout is exact: it has the runs that asking every pair finds.
#pragma once

#include <gtest/gtest.h>

#include "brute_layout.h"
#include "ir/print.h"
#include "layout/build.h"

namespace treadle::layout {

inline void expect_exact(const Mask& mask, const Extent& extent, const Tiles& tiles,
                         const Layout& layout) {
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      const auto sights = test::every_pair(mask, extent, b, h);
      for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
        const auto runs = layout.runs(b, h, tile);
        ASSERT_EQ(std::vector<Run>(runs.begin(), runs.end()),
                  test::brute_runs(sights, extent, tiles, tile))
            << ir::to_text(mask.graph) << "\n"
            << to_text(layout);
      }
    }
  }
}

}  // namespace treadle::layout
