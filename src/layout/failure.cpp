// Looks for a pair at which a mask fails, query by query, in the partial runs of a layout.
//
// In: a mask and its layout. Out: the first failure, the same for any number of threads.
#include "layout/failure.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "base/parallel.h"
#include "ir/interpret.h"

namespace treadle::layout {
namespace {

std::vector<std::int64_t> partial_keys(std::span<const Run> runs) {
  std::vector<std::int64_t> keys;
  for_each_piece(runs, [&](Range piece, bool full) {
    if (full) return;
    keys.resize(keys.size() + static_cast<std::size_t>(piece.count()));
    std::iota(keys.end() - piece.count(), keys.end(), piece.begin);
  });
  return keys;
}

std::optional<MaskFailure> failure_in(const Mask& mask, const Layout& layout, std::int64_t b,
                                      std::int64_t h, std::int64_t tile) {
  const std::vector<std::int64_t> keys = partial_keys(layout.runs(b, h, tile));
  if (keys.empty()) return std::nullopt;
  std::vector<std::int64_t> queries;
  for (std::int64_t i = 0; i < layout.tiles().size(tile); ++i)
    queries.push_back(layout.tiles().query(tile, i));
  std::ranges::sort(queries);
  ir::Interpreter<double> run(mask.graph, mask.memory);
  const int last = static_cast<int>(mask.graph.outputs().size()) - 1;
  const std::int64_t seen_b = layout.extent().first_b + b;
  const std::int64_t seen_h = layout.extent().first_h + h;
  for (const std::int64_t q : queries) {
    run({.b = {&seen_b, 1}, .h = {&seen_h, 1}, .q = {&q, 1}, .kv = keys},
        static_cast<std::int64_t>(keys.size()));
    const auto poison = run.poison(last);
    const auto found = std::ranges::find_if(poison, [](auto p) { return p != 0; });
    if (found == poison.end()) continue;
    const std::int64_t at = found - poison.begin();
    return MaskFailure{seen_b, seen_h, q, keys[static_cast<std::size_t>(at)],
                       run.poison_reason(last, at)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<MaskFailure> find_failure(const Mask& mask, const Layout& layout,
                                        const base::Workers& workers) {
  const std::int64_t tiles = layout.tiles().count();
  const std::int64_t heads = layout.per_head() ? layout.extent().heads : 1;
  const std::int64_t lists = (layout.per_batch() ? layout.extent().batch : 1) * heads;
  // Tiles of all lists, counted through. Those after a failure need not be looked at.
  const auto look = [&](std::int64_t at) {
    return failure_in(mask, layout, at / tiles / heads, at / tiles % heads, at % tiles);
  };
  std::atomic<std::int64_t> first{lists * tiles};
  base::parallel_for(workers, lists * tiles, [&](std::int64_t at) {
    if (at > first || !look(at)) return;
    std::int64_t now = first;
    while (at < now && !first.compare_exchange_weak(now, at)) {
    }
  });
  return first < lists * tiles ? look(first) : std::nullopt;
}

}  // namespace treadle::layout
