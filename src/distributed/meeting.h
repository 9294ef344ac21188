// Meetings: of a cut leaf, what parts with some chunks of its keys find goes to parts that join it in order, some tiles
// each, and send the joined rows home. So their owner, who may have many such leaves, gets each row once, and where
// many chunks are apart nobody gets the states of all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "distributed/part.h"
#include "distributed/row_join.h"
#include "distributed/row_runs.h"
#include "layout/range.h"

namespace treadle::distributed {

// What two parts have in common, a cut one and one that joins.
struct Meeting {
  int cut_rank = 0, joining_rank = 0;
  std::size_t cut = 0, joining = 0;    // of the parts of those ranks
  std::int64_t chunk = 0, slices = 1;  // of the cut part
  layout::Range batch, heads;          // of queries, counted in the whole call
  RowRun rows;  // packed ones: `position` in the part that joins, `row` in the cut one
  layout::Range cut_batch, cut_heads, joining_batch, joining_heads;  // all of each part's

  // Rows of a slice.
  [[nodiscard]] std::int64_t count() const { return batch.count() * heads.count() * rows.count; }
};

// Those that this rank takes part in, in an order that all ranks know.
std::vector<Meeting> find_meetings(std::span<const Piece> pieces,
                                   const std::vector<PassPlan>& passes, layout::Range chunks,
                                   std::int64_t per_key_head, int rank);

// Copies what the cut part has of them: a tensor [batch, heads, rows, ...] of the part.
void take_meeting(const Meeting& meeting, const ConstView& of_cut, std::byte*& to);

// Of one of its slices, as the part that joins sees it: where it lies in a message, or in the cut part itself.
FoundRows met_in_message(const Meeting& meeting, std::int64_t slice, std::span<const RowRun> runs);
FoundRows met_in_part(const Meeting& meeting, std::int64_t slice, std::int64_t cut_rows,
                      std::span<const RowRun> runs);

}  // namespace treadle::distributed
