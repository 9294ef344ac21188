// Builds the mask's layout and counts.
#include "cli/visible_share.h"

#include "cli/traced_mask.h"
#include "layout/statistics.h"

namespace treadle::cli {

double visible_share(const MaskMod& mask, const Sizes& sizes, Executor& executor) {
  const TracedMask traced_mask = traced(mask);
  const layout::Extent extent{sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  const layout::Layout layout =
      layout::build(traced_mask.mask, extent, layout::Tiles({}, sizes.queries, 48), executor);
  return static_cast<double>(layout::visible_pairs(traced_mask.mask, layout, executor)) /
         static_cast<double>(layout.all_pairs());
}

}  // namespace treadle::cli
