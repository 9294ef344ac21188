// A Selection: keys given outright, per block of queries, before any mask is asked.
//
//   FlexAttention's block lists, OpenAI's block layouts, or the top-k blocks or tokens that a
//   program chose from its data.
//
// Queries of one block share their list. Inside a selected stretch the mask still decides, unless
// the stretch says that it is known to be all visible.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layout/layout.h"
#include "treadle/view.h"

namespace treadle::layout {

struct Stretch {
  std::int64_t begin = 0, end = 0;
  bool skip_mask = false;

  bool operator==(const Stretch&) const = default;
};

class Selection {
 public:
  Selection() = default;
  // `stretches` has one list per (batch or 1, head or 1, query block), in that order; lists are
  // sorted here. Overlaps and stretches outside 0 .. keys are errors.
  Selection(Extent extent, std::int64_t query_block, bool per_batch, bool per_head,
            std::vector<std::vector<Stretch>> stretches);

  [[nodiscard]] const Extent& extent() const { return extent_; }
  [[nodiscard]] std::int64_t query_block() const { return query_block_; }
  [[nodiscard]] std::int64_t query_blocks() const {
    return (extent_.queries.count() + query_block_ - 1) / query_block_;
  }
  [[nodiscard]] bool per_batch() const { return per_batch_; }
  [[nodiscard]] bool per_head() const { return per_head_; }
  [[nodiscard]] std::span<const Stretch> stretches(std::int64_t b, std::int64_t h,
                                                   std::int64_t query_block) const;

 private:
  Extent extent_;
  std::int64_t query_block_ = 1;
  bool per_batch_ = false, per_head_ = false;
  std::vector<std::vector<Stretch>> stretches_;
};

// Lists of key blocks: list[i] are block numbers in any order; block k covers keys k * key_block up
// to the next or the end. Duplicates and numbers outside are refused.
Selection select_blocks(Extent extent, std::int64_t query_block, std::int64_t key_block,
                        bool per_batch, bool per_head,
                        const std::vector<std::vector<std::int64_t>>& lists);

// Lists of single keys: tokens[batch or 1, heads or 1, query blocks, longest list], i32 or i64, of
// any strides and in any order. Lists of different lengths are filled up with anything and come
// with counts[batch or 1, heads or 1, query blocks]: only that many tokens of a row are read.
// Without counts all of them are, so -1 for "none" is an error, as are duplicates and keys that do
// not exist.
Selection select_tokens(const Extent& extent, std::int64_t query_block, const ConstView& tokens,
                        const std::optional<ConstView>& counts = {});

}  // namespace treadle::layout
