// Which forward kernels a layout needs.
#include "run/forward_kernels.h"

#include <algorithm>

#include "plan/chunks.h"

namespace treadle::run {

void needed(const ForwardKernels& kernels, const layout::Layout& layout, bool only,
            Missing& missing) {
  const plan::TilePlan& plan = kernels.widest().plan;
  const std::vector<int> vectors =
      plan::kernel_vectors(layout.tiles(), plan.target.lanes(plan.compute));
  const std::int64_t chunks = plan::chunks_of(layout.extent().keys).count();
  // The longest to compile come first.
  for (int v = plan::most_vectors; v >= 1; --v) {
    if (std::ranges::find(vectors, v) == vectors.end()) continue;
    const ForwardKernels::OfTile& tile = kernels.tile(v);
    if (layout.has_partial()) missing.add(tile.masked);
    if (layout.has_full()) missing.add(tile.full);
    missing.add(tile.queries_to_lanes);
    missing.add(tile.sums_to_rows);
    if (!only) missing.add(tile.sums_to_lanes);
    if (!only || chunks > 1) missing.add(tile.merge);
  }
  if (!only) missing.add(kernels.copy_sums);
  missing.add(kernels.load_q);
  missing.add(kernels.store_out);
}

void all_of(const ForwardKernels& kernels, bool masked, Missing& missing) {
  for (int v = plan::most_vectors; v >= 1; --v) {
    const ForwardKernels::OfTile& tile = kernels.tile(v);
    for (const auto* kernel : {&tile.full, &tile.exact_full}) missing.add(*kernel);
    if (masked)
      for (const auto* kernel : {&tile.masked, &tile.exact_masked}) missing.add(*kernel);
    for (const auto* kernel : {&tile.queries_to_lanes, &tile.sums_to_rows, &tile.sums_to_lanes})
      missing.add(*kernel);
    missing.add(tile.merge);
  }
  for (const CopyKernel* copy :
       {&kernels.load_q, &kernels.load_k, &kernels.load_v, &kernels.store_out, &kernels.copy_sums})
    missing.add(*copy);
}

}  // namespace treadle::run
