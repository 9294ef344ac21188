// Which forward kernels a layout needs.
#include "run/forward_kernels.h"

#include <algorithm>

#include "plan/chunks.h"

namespace treadle::run {

void needed(const ForwardKernels& kernels, const layout::Layout& layout, bool only,
            std::vector<std::function<void()>>& missing) {
  const auto add = [&](const auto& kernel) {
    if (!kernel.ready()) missing.emplace_back([&kernel] { kernel.prepare(); });
  };
  const plan::TilePlan& plan = kernels.widest().plan;
  const std::vector<int> vectors =
      plan::kernel_vectors(layout.tiles(), plan.target.lanes(plan.compute));
  const std::int64_t chunks = plan::chunks_of(layout.extent().keys).count();
  // The longest to compile come first.
  for (int v = plan::most_vectors; v >= 1; --v) {
    if (std::ranges::find(vectors, v) == vectors.end()) continue;
    const ForwardKernels::OfTile& tile = kernels.tile(v);
    if (layout.has_partial()) add(tile.masked);
    if (layout.has_full()) add(tile.full);
    add(tile.queries_to_lanes);
    add(tile.sums_to_rows);
    if (!only) add(tile.sums_to_lanes);
    if (!only || chunks > 1) add(tile.merge);
  }
  if (!only) add(kernels.copy_sums);
  add(kernels.load_q);
  add(kernels.store_out);
}

}  // namespace treadle::run
