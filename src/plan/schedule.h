// A Schedule: the tasks of a call, longest first.
//
// A task is a group of neighbouring query tiles of the heads that share one key head, against a
// range of key chunks (plan/chunks.h). Few and long tasks are cut, at chunk borders only, so that
// all threads have work; what the pieces find is put together in order, so the cuts do not show in the result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/layout.h"
#include "layout/tile_weights.h"

namespace treadle::plan {

struct Task {
  std::int64_t b = 0, key_head = 0;
  std::int64_t first = 0, count = 0;  // of the entries of this key head
  layout::Range chunks;
  std::int64_t cut = -1;  // which cut group it is a piece of
  double cost = 0;
};

// Tasks whose pieces belong together: a partial result for each chunk of each of `count` tiles.
struct Cut {
  layout::Range chunks;
  std::int64_t pieces = 0, count = 0;
};

struct Schedule {
  std::vector<Task> tasks;
  std::vector<Cut> cuts;
};

// The entries of a key head, counted through: tiles, the parts of a tile that holds more queries
// than a kernel takes at once, and all heads of each. So tiles of the same queries, which mostly look
// at the same keys, are neighbours.
struct Entry {
  std::int64_t head = 0, tile = 0;
  std::int64_t first_query = 0, queries = 0;  // of the tile's; 0: nothing to do
};

// A task is cut into pieces where it is longer than so many equal shares of a thread.
inline constexpr int pieces_per_thread = 4;

struct ScheduleOptions {
  std::int64_t key_heads = 1;
  std::int64_t most_queries = 48;  // that a kernel takes at once
  int tiles_per_group = 4;
  int threads = 1;
  bool may_cut = true;  // else tasks stay whole, however few there are
  layout::TileWeights weights;
};

// The entry-th of key head `key_head`.
Entry entry_of(const layout::Layout& layout, std::int64_t key_heads, std::int64_t most_queries,
               std::int64_t key_head, std::int64_t entry);

// Of layouts with the same tiles, which a task looks at one after the other.
Schedule schedule(std::span<const layout::Layout* const> layouts, const ScheduleOptions& options);
inline Schedule schedule(const layout::Layout& layout, const ScheduleOptions& options) {
  const layout::Layout* only = &layout;
  return schedule(std::span(&only, 1), options);
}

}  // namespace treadle::plan
