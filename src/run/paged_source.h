// PagedSource: keys and values of one sequence that lie in pages of a pool.
//
//   PagedSource source({pool_k}, {pool_v}, {.table = table, .page_size = 16}, {0, 50});
//   source.rows(0, key_head, 17)            // positions 16 .. 32, in page table[1]
//
// A table may change while it is read: an entry that names no page of the pool then means another
// one that does, so that nothing outside the pool is read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "run/key_source.h"
#include "run/rows.h"

namespace treadle::run {

// [pages, key heads, page size, dim], last stride 1; and what each row of 8 bits is multiplied with,
// [pages, key heads, page size] of f32, or null.
struct PagePool {
  const ConstView& rows;
  const ConstView* scales = nullptr;
};

// Which pages a sequence has.
struct PageList {
  const std::int32_t* table = nullptr;
  std::int64_t stride = 1;  // of the table
  std::int64_t page_size = 1;
  std::int64_t first = 0;  // the position of the first key of the first page
};

class PagedSource final : public KeySource {
 public:
  // All that is given outlives this.
  PagedSource(const PagePool& k, const PagePool& v, const PageList& pages, layout::Range positions)
      : k_(k), v_(v), pages_(pages), positions_(positions) {}

  [[nodiscard]] std::int64_t batch() const override { return 1; }
  [[nodiscard]] std::int64_t heads() const override { return k_.rows.size(1); }
  [[nodiscard]] layout::Range positions() const override { return positions_; }
  [[nodiscard]] DType key_type() const override { return k_.rows.dtype(); }
  [[nodiscard]] DType value_type() const override { return v_.rows.dtype(); }
  [[nodiscard]] KeyRows rows(std::int64_t b, std::int64_t key_head,
                             std::int64_t position) const override;
  [[nodiscard]] bool needs_copy(DType compute) const override;

 private:
  PagePool k_, v_;
  PageList pages_;
  layout::Range positions_;
};

}  // namespace treadle::run
