// Lists of whole numbers that a program hands over as an array, one list per batch, head and block
// of queries.
//
//   const IntegerLists lists("layout", "indices", indices, counts, {.batch = 2, .heads = 8, ...});
//   for (const std::int64_t key : lists.read(b, h, row)) ...
//
// Only the first counts[b, h, row] numbers of a row are read, all of them without counts; what
// stands behind them may be anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "treadle/view.h"

namespace treadle::layout {

// What the lists are for.
struct ListShape {
  std::int64_t batch = 1, heads = 1, key_heads = 1;
  std::int64_t rows = 0;  // blocks of queries
};

class IntegerLists {
 public:
  // `lists` is [batch or 1; heads, key heads or 1; rows; longest], `counts` the same without the
  // last axis; both i32 or i64, of any strides. Throws treadle::Error with `call` and `what` for
  // others.
  IntegerLists(std::string call, std::string what, const ConstView& lists,
               const std::optional<ConstView>& counts, const ListShape& shape);

  // How many lists there are along batch and heads, counts included.
  [[nodiscard]] std::int64_t batch_lists() const;
  [[nodiscard]] std::int64_t head_lists() const;
  [[nodiscard]] const std::string& what() const { return what_; }
  [[nodiscard]] bool has_counts() const { return counts_.has_value(); }

  // For one batch and head of all. Throws for a count that is negative or longer than the row.
  [[nodiscard]] std::vector<std::int64_t> read(std::int64_t b, std::int64_t h,
                                               std::int64_t row) const;

  // "batch 0, head 1, query block 3": where the list stands in the arrays, for error messages.
  [[nodiscard]] std::string place(std::int64_t b, std::int64_t h, std::int64_t row) const;

 private:
  void check(const ConstView& view, const std::string& what, Dims wanted) const;
  [[nodiscard]] std::int64_t offset_of(const ConstView& view, std::int64_t b, std::int64_t h,
                                       std::int64_t row) const;

  std::string call_, what_;
  ConstView lists_;
  std::optional<ConstView> counts_;
  ListShape shape_;
};

}  // namespace treadle::layout
