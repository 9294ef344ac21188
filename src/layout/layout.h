// A Layout: for each tile of queries, the runs of keys it has to look at.
//
//   for_each_piece(layout.runs(b, h, tile), [&](Range keys, bool full) {
//     ...                               // whether all queries of the tile see these keys
//   });
//
// Exact at the grain of single columns: a column is in a run iff some query of the tile sees it,
// and it is in a full run iff all do. Runs are packed as append() does it (layout/run.h), so equal
// masks give equal layouts. A layout depends on lengths and on the contents of captures; it
// is a value to be held and reused as long as those stay.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout/order.h"
#include "layout/run.h"

namespace treadle::layout {

// Batches and heads are counted; queries and keys are positions, as masks see them.
struct Extent {
  std::int64_t batch = 1, heads = 1;
  Range queries, keys;
  std::int64_t first_b = 0;  // what masks see as b of the first batch entry
  std::int64_t first_h = 0;  // and as h of the first head

  bool operator==(const Extent&) const = default;
};

// Throws treadle::Error for what no layout can have.
void check_extent(const Extent& extent);

// What a layout with one tile says, wherever it is kept.
struct OneTile {
  Extent extent;
  bool per_batch = false, per_head = false;
  bool has_full = false, has_partial = false;
  const std::uint32_t* offsets = nullptr;  // as Layout has them
  const Run* all = nullptr;

  [[nodiscard]] std::span<const Run> runs(std::int64_t b, std::int64_t h) const {
    const std::int64_t list =
        (per_batch ? b * (per_head ? extent.heads : 1) : 0) + (per_head ? h : 0);
    return {all + offsets[list], offsets[list + 1] - offsets[list]};
  }
};

class Layout {
 public:
  Layout() = default;
  // `runs` has one list per (batch or 1, head or 1, tile), in that order.
  Layout(Extent extent, Tiles tiles, bool per_batch, bool per_head,
         const std::vector<std::vector<Run>>& runs);

  [[nodiscard]] const Extent& extent() const { return extent_; }
  [[nodiscard]] const Tiles& tiles() const { return tiles_; }
  // A mask that does not mention b or h has one layout for all of them.
  [[nodiscard]] bool per_batch() const { return per_batch_; }
  [[nodiscard]] bool per_head() const { return per_head_; }

  [[nodiscard]] std::span<const Run> runs(std::int64_t b, std::int64_t h, std::int64_t tile) const;
  // Of one that has one tile, as long as it is there.
  [[nodiscard]] OneTile only_tile() const {
    return {extent_, per_batch_, per_head_, has_full_, has_partial_, offsets_.data(), runs_.data()};
  }
  [[nodiscard]] std::int64_t run_count() const { return static_cast<std::int64_t>(runs_.size()); }
  [[nodiscard]] std::int64_t bytes() const;

  // Whether there are runs of either kind.
  [[nodiscard]] bool has_full() const { return has_full_; }
  [[nodiscard]] bool has_partial() const { return has_partial_; }
  // Whether some tile looks at pieces of keys at regular distances.
  [[nodiscard]] bool has_steps() const { return has_steps_; }
  // How many pieces of runs a tile has at most.
  [[nodiscard]] std::int64_t most_pieces() const { return most_pieces_; }
  // How many keys a run has on average.
  [[nodiscard]] double keys_per_run() const { return keys_per_run_; }

  // Pairs inside runs, over all batches and heads.
  [[nodiscard]] std::int64_t run_pairs() const;
  [[nodiscard]] std::int64_t all_pairs() const;

  bool operator==(const Layout& other) const;

 private:
  Extent extent_;
  Tiles tiles_;
  bool per_batch_ = false, per_head_ = false;
  bool has_full_ = false, has_partial_ = false, has_steps_ = false;
  std::int64_t most_pieces_ = 0;
  double keys_per_run_ = 0;
  std::vector<std::uint32_t> offsets_;  // where each list begins in runs_; one more at the end
  std::vector<Run> runs_;
};

// The same tiles, looking at those of their keys that lie in a range.
Layout restricted(const Layout& layout, Range keys);

// "tile 3, 48 queries from 144 in steps of 1: [0, 145) full [145, 192) partial", for dumps; long
// layouts are cut.
std::string to_text(const Layout& layout, std::int64_t most_tiles = 64);

}  // namespace treadle::layout
