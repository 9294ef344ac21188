// Rows of the queries that a part works on, and where they come from.
//
// A part keeps its rows packed, tile after tile (layout::Tiles::some). A RowRun is some of them that one rank has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "layout/order.h"
#include "layout/range.h"
#include "treadle/view.h"

namespace treadle::distributed {

// Packed rows row .. row + count are the queries position, position + step, ...
struct RowRun {
  std::int64_t position = 0, step = 1, count = 0, row = 0;
};

// Those of packed tiles whose positions lie in the range, in the order of rows.
std::vector<RowRun> runs_in(const layout::Tiles& tiles, layout::Range positions);
std::int64_t rows_of(std::span<const RowRun> runs);
// The same as they lie in a message: one after another.
std::vector<RowRun> one_after_another(std::span<const RowRun> runs);

// Copies rows of some batch entries and heads of a tensor [batch, heads, length, dim] (or [batch, heads, length]) whose
// first row is that of position `first`, and whose last stride is 1: entry after entry, head after head, run after run.
// Moves `to` on.
void take_rows(const ConstView& from, std::int64_t first, layout::Range batch, layout::Range heads,
               std::span<const RowRun> runs, std::byte*& to);
// And back.
void put_rows(const View& to, std::int64_t first, layout::Range batch, layout::Range heads,
              std::span<const RowRun> runs, const std::byte*& from);
// From one to the other: `packed` has exactly those entries and heads.
void pack_rows(const View& packed, const ConstView& from, std::int64_t first, layout::Range batch,
               layout::Range heads, std::span<const RowRun> runs, const base::Workers& workers);
void unpack_rows(const View& to, std::int64_t first, layout::Range batch, layout::Range heads,
                 std::span<const RowRun> runs, const ConstView& packed,
                 const base::Workers& workers);
// As take_rows for packed rows: tensors [batch, heads, rows, dim] of a part, contiguous.
void take_packed(const ConstView& from, std::span<const RowRun> runs, std::byte*& to);

}  // namespace treadle::distributed
