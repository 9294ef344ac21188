// A Selection: the keys that each block of queries may look at, before any mask is asked.
//
//   Selection selection = select_keys({64, 16, indices, counts}, extent, key_heads, workers);
//   Layout layout = build(mask, selection, tiles_for(selection, weights), workers);
//
// Queries of one block share their list. In a listed run the mask still decides, unless the run is
// full: a full block of FlexAttention's lists is visible whatever the mask says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "layout/layout.h"
#include "layout/tile_weights.h"
#include "treadle/block_lists.h"
#include "treadle/key_lists.h"

namespace treadle::layout {

class Selection {
 public:
  Selection() = default;
  // One list per (batch or 1; head, group of heads or 1; query block), in that order: ascending
  // runs within the keys that do not overlap.
  Selection(const Extent& extent, std::int64_t query_block, std::int64_t batch_lists,
            std::int64_t head_lists, const std::vector<std::vector<Run>>& lists);

  [[nodiscard]] const Extent& extent() const { return extent_; }
  [[nodiscard]] std::int64_t query_block() const { return query_block_; }
  [[nodiscard]] std::int64_t query_blocks() const;
  // Whether lists differ from batch to batch, from head to head.
  [[nodiscard]] bool per_batch() const { return batch_lists_ != 1; }
  [[nodiscard]] bool per_head() const { return head_lists_ != 1; }

  [[nodiscard]] std::span<const Run> runs(std::int64_t b, std::int64_t h,
                                          std::int64_t query_block) const;

 private:
  Extent extent_;
  std::int64_t query_block_ = 1, batch_lists_ = 1, head_lists_ = 1;
  std::vector<std::size_t> offsets_;  // where each list begins in runs_; one more at the end
  std::vector<Run> runs_;
};

// Both throw treadle::Error, as said in the public headers, in the name of Attention::layout.
Selection select_keys(const KeyLists& lists, const Extent& extent, std::int64_t key_heads,
                      const base::Workers& workers);
Selection select_blocks(const BlockListViews& lists, const Extent& extent, std::int64_t key_heads,
                        const base::Workers& workers);

// The best tiles that do not cross a border of its query blocks.
Tiles tiles_for(const Selection& selection, const TileWeights& weights);

}  // namespace treadle::layout
