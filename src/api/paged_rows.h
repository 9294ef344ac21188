// PagedRows: a pool of pages that rows are written into, with its scales if it has some.
//
//   PagedRows keys("k", pool, PageOrder::heads_first, {.scales = scales});   // checks them
//   keys.check("append", rows);                   // [tokens, heads, dim]: may they be written?
//   keys.check_values("append", rows);
//   keys.copy(3, 5, 7);                           // the first 7 tokens of page 3 into page 5
//   keys.write(5, 7, rows, {0, 2});               // rows 0 and 1 become tokens 7 and 8 of page 5
//
// copy and write throw nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "layout/range.h"
#include "treadle/sequences.h"
#include "treadle/view.h"

namespace treadle::api {

class PagedRows {
 public:
  struct Scales {
    std::optional<View> scales;
    bool given = false;  // by the caller: read, not written
  };

  // `name` is k or v.
  PagedRows(std::string_view name, const View& pool, PageOrder order, const Scales& scales);

  [[nodiscard]] std::int64_t pages() const { return rows_.size(0); }
  [[nodiscard]] std::int64_t heads() const { return rows_.size(1); }
  [[nodiscard]] std::int64_t page_size() const { return rows_.size(2); }
  [[nodiscard]] std::int64_t dim() const { return rows_.size(3); }

  // Type and shape.
  void check(std::string_view call, const ConstView& rows) const;
  // What is quantised must be finite.
  void check_values(std::string_view call, const ConstView& rows) const;
  // Whether it lies in the memory of the pool or of the scales.
  [[nodiscard]] bool overlaps(const ConstView& rows) const;

  void copy(std::int64_t from_page, std::int64_t to_page, std::int64_t tokens) const;
  void write(std::int64_t page, std::int64_t token, const ConstView& rows,
             layout::Range which) const;

 private:
  void check_pool(PageOrder order, const View& pool) const;
  void check_scales(PageOrder order, const Scales& scales) const;
  void check_given(const View& scales) const;
  void quantise_rows(std::int64_t page, std::int64_t token, const ConstView& rows,
                     layout::Range which) const;

  std::string name_;
  View rows_;                   // [pages, heads, page size, dim]
  std::optional<View> scales_;  // [pages, heads, page size]; those of pages repeat
  bool by_page_ = false, given_ = false;
};

}  // namespace treadle::api
