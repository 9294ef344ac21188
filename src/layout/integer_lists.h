// Lists of whole numbers that a program hands over as an array, one list per batch, head and block
// of queries.
//
//   const IntegerLists lists("select_tokens", "tokens", tokens, counts, extent, query_blocks);
//   for (const std::int64_t key : lists.read(b, h, row)) ...
//
// Only the first counts[b, h, row] numbers of a row are read, all of them without counts; what
// stands behind them may be anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "treadle/view.h"

namespace treadle::layout {

class IntegerLists {
 public:
  // `lists` is [batch or 1, heads or 1, rows, longest], `counts` the same without the last axis;
  // both i32 or i64, of any strides. Throws treadle::Error with `call` and `what` for others.
  IntegerLists(std::string call, std::string what, const ConstView& lists,
               const std::optional<ConstView>& counts, const Extent& extent, std::int64_t rows);

  // Whether lists may differ from batch to batch, from head to head.
  [[nodiscard]] bool per_batch() const { return per_axis(0); }
  [[nodiscard]] bool per_head() const { return per_axis(1); }

  // Throws for a count that is negative or longer than the row.
  [[nodiscard]] std::vector<std::int64_t> read(std::int64_t b, std::int64_t h,
                                               std::int64_t row) const;

 private:
  void check(const ConstView& view, const std::string& what, const Dims& shape) const;
  [[nodiscard]] bool per_axis(int axis) const;

  std::string call_, what_;
  ConstView lists_;
  std::optional<ConstView> counts_;
};

// "batch 0, head 1, query block 3", as it stands in error messages.
std::string place_of(std::int64_t b, std::int64_t h, std::int64_t query_block);

}  // namespace treadle::layout
