// A layout by asking every pair: what layout::build must find.
#pragma once

#include <vector>

#include "ir/interpret.h"
#include "layout/build.h"

namespace treadle::test {

// Whether the mask shows the pair, or cannot tell (poison).
enum class Sight { hidden, visible, poisoned };

inline std::vector<Sight> every_pair(const layout::Mask& mask, const layout::Extent& extent,
                                     std::int64_t b, std::int64_t h) {
  std::vector<std::int64_t> q, kv;
  for (std::int64_t i = extent.queries.begin; i < extent.queries.end; ++i) {
    for (std::int64_t j = extent.keys.begin; j < extent.keys.end; ++j) {
      q.push_back(i);
      kv.push_back(j);
    }
  }
  ir::Interpreter<double> run(mask.graph, mask.memory);
  run({.b = {&b, 1}, .h = {&h, 1}, .q = q, .kv = kv}, static_cast<std::int64_t>(q.size()));
  std::vector<Sight> sights(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    const bool poisoned = !run.poison(0).empty() && run.poison(0)[i] != 0;
    sights[i] = poisoned                  ? Sight::poisoned
                : run.booleans(0)[i] != 0 ? Sight::visible
                                          : Sight::hidden;
  }
  return sights;
}

inline std::vector<layout::Run> brute_runs(const std::vector<Sight>& sights,
                                           const layout::Extent& extent, const layout::Tiles& tiles,
                                           std::int64_t tile) {
  std::vector<layout::Run> runs;
  for (std::int64_t key = extent.keys.begin; key < extent.keys.end; ++key) {
    bool some = false;
    bool all = true;
    for (std::int64_t i = 0; i < tiles.size(tile); ++i) {
      const std::int64_t row = tiles.query(tile, i) - extent.queries.begin;
      const Sight sight =
          sights[static_cast<std::size_t>(row * extent.keys.count() + key - extent.keys.begin)];
      some = some || sight != Sight::hidden;
      all = all && sight == Sight::visible;
    }
    if (some) layout::append(runs, key, key + 1, all);
  }
  return runs;
}

}  // namespace treadle::test
