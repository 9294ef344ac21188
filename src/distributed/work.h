// PassWork: what a pass over the queries has to do, leaf by leaf. All that the planner knows of a mask.
//
//   PassWork work = work_of(passes, 0, sizes, {0, 100}, workers);    // leaves that this rank looks at
//   work.append(PassWork::from_bytes(of_later_leaves));              // and those of others
//
// A leaf is what is never divided along the queries, since sums over queries are made of leaves
// (run/sum_tree.h): so many neighbouring tiles of the pass. It may be divided by key heads, and by
// chunks of keys (plan/chunks.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/parallel.h"
#include "layout/range.h"
#include "layout/run.h"
#include "plan/backward_schedule.h"

namespace treadle::distributed {

struct PassWork {
  std::int64_t leaves = 0, chunks = 0;           // leaves that it has, and chunks of all keys
  std::int64_t batch_lists = 1, head_lists = 1;  // 1, or as many as batch entries; 1, or key heads
  // [leaves][batch_lists][head_lists][chunks]: (query, key) pairs that are looked at, of all query
  // heads of a key head.
  std::vector<std::int64_t> pairs;
  // As pairs: the tiles of the leaf, counted from its first, from the first to the last that looks at
  // the chunk.
  struct TileSpan {
    std::uint16_t begin = 0, end = 0;
    bool operator==(const TileSpan&) const = default;
  };
  std::vector<TileSpan> tiles;
  // [leaves][batch_lists][head_lists]: keys that are looked at. First plain runs, which ascend, then
  // those of several pieces, whose keys may lie among others'. There are few: where there would be more, small gaps are
  // closed.
  std::vector<std::vector<layout::Run>> keys;
  plan::ChunkWork chunk_work;  // plan::chunk_work() of the leaves' layout

  [[nodiscard]] std::size_t list(std::int64_t leaf, std::int64_t b, std::int64_t key_head) const {
    return static_cast<std::size_t>((leaf * batch_lists + (batch_lists == 1 ? 0 : b)) * head_lists +
                                    (head_lists == 1 ? 0 : key_head));
  }
  // By chunk.
  [[nodiscard]] std::span<const std::int64_t> pairs_of(std::size_t list) const {
    return std::span(pairs).subspan(list * static_cast<std::size_t>(chunks),
                                    static_cast<std::size_t>(chunks));
  }

  [[nodiscard]] std::span<const TileSpan> tiles_of(std::size_t list) const {
    return std::span(tiles).subspan(list * static_cast<std::size_t>(chunks),
                                    static_cast<std::size_t>(chunks));
  }

  // The leaves after these.
  void append(const PassWork& later);

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  static PassWork from_bytes(std::span<const std::byte> bytes);

  bool operator==(const PassWork&) const = default;
};

// How many leaves a pass has, of tiles so many of which are a leaf.
inline std::int64_t leaves_of(std::int64_t tiles, std::int64_t tiles_per_leaf) {
  return (tiles + tiles_per_leaf - 1) / tiles_per_leaf;
}
// The tiles of some leaves.
layout::Range tiles_of(layout::Range leaves, std::int64_t tiles, std::int64_t tiles_per_leaf);

// Of some leaves of a pass, from layouts of a few of them at a time.
PassWork work_of(const backend::QueryPasses& passes, std::size_t pass, const backend::Sizes& sizes,
                 layout::Range leaves, const base::Workers& workers);
// The same of a layout of some tiles, the first of which begins a leaf.
PassWork work_of(const layout::Layout& layout, std::int64_t tiles_per_leaf, std::int64_t key_heads,
                 const base::Workers& workers);

}  // namespace treadle::distributed
