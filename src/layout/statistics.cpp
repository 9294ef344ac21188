// Counts what layouts show, and what square blocks would.
//
// In: a mask, a layout. Out: a number.
#include "layout/statistics.h"

#include <algorithm>
#include <atomic>

#include "base/parallel.h"
#include "ir/interpret.h"

namespace treadle::layout {
namespace {

// The lists of a layout that differ: one per batch and head only where the mask mentions them.
template <class F>
void for_each_list(const Layout& layout, const F& f) {
  for (std::int64_t b = 0; b < (layout.per_batch() ? layout.extent().batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? layout.extent().heads : 1); ++h) f(b, h);
  }
}

// How many batches and heads share one list.
std::int64_t sharing(const Layout& layout) {
  return (layout.per_batch() ? 1 : layout.extent().batch) *
         (layout.per_head() ? 1 : layout.extent().heads);
}

}  // namespace

std::int64_t visible_pairs(const Mask& mask, const Layout& layout, const base::Workers& workers) {
  const Tiles& tiles = layout.tiles();
  std::atomic<std::int64_t> visible{0};
  for_each_list(layout, [&](std::int64_t b, std::int64_t h) {
    const std::int64_t seen_b = layout.extent().first_b + b;
    const std::int64_t seen_h = layout.extent().first_h + h;
    base::parallel_for(workers, tiles.count(), [&](std::int64_t tile) {
      ir::Interpreter<double> run(mask.graph, mask.memory);
      std::vector<std::int64_t> q(static_cast<std::size_t>(tiles.size(tile)));
      for (std::size_t i = 0; i < q.size(); ++i) {
        q[i] = tiles.query(tile, static_cast<std::int64_t>(i));
      }
      std::int64_t count = 0;
      for (const Run& part : layout.runs(b, h, tile)) {
        if (part.full()) {
          count += part.length() * tiles.size(tile);
          continue;
        }
        // A key at a time: the columns of a scattered mask together could be as large as the mask.
        for_each_piece({&part, 1}, [&](Range keys, bool) {
          for (std::int64_t key = keys.begin; key < keys.end; ++key) {
            run({.b = {&seen_b, 1}, .h = {&seen_h, 1}, .q = q, .kv = {&key, 1}}, tiles.size(tile));
            count += std::ranges::count(run.booleans(0), 1);
          }
        });
      }
      visible += count;
    });
  });
  return visible * sharing(layout);
}

double block_density(const Mask& mask, const Extent& extent, std::int64_t block,
                     const base::Workers& workers) {
  const Layout layout = build(mask, extent, Tiles({}, extent.queries, block), workers);
  std::int64_t pairs = 0;
  for_each_list(layout, [&](std::int64_t b, std::int64_t h) {
    for (std::int64_t tile = 0; tile < layout.tiles().count(); ++tile) {
      std::int64_t done = 0;  // keys before this one belong to blocks that are counted
      for_each_piece(layout.runs(b, h, tile), [&](Range keys, bool) {
        const std::int64_t begin = std::max(done, keys.begin / block * block);
        const std::int64_t end =
            std::min((keys.end + block - 1) / block * block, extent.keys.count());
        pairs += std::max<std::int64_t>(end - begin, 0) * layout.tiles().size(tile);
        done = std::max(done, end);
      });
    }
  });
  const std::int64_t all = layout.all_pairs();
  return all == 0 ? 0.0 : static_cast<double>(pairs * sharing(layout)) / static_cast<double>(all);
}

}  // namespace treadle::layout
