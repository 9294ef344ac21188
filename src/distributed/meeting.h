// Meetings: of a cut leaf, what parts with later chunks of its keys find goes to the part that has the first chunk,
// which joins it in order and sends the joined rows home. So their owner, who may have many such leaves, gets each row
// once.
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

// What two parts have in common, the later one and the first.
struct Meeting {
  int later_rank = 0, first_rank = 0;
  std::size_t later = 0, first = 0;    // of the parts of those ranks
  std::int64_t chunk = 0, slices = 1;  // of the later part
  layout::Range batch, heads;          // of queries, counted in the whole call
  RowRun rows;  // packed ones: `position` in the first part, `row` in the later one
  layout::Range later_batch, later_heads, first_batch, first_heads;  // all of each part's

  // Rows of a slice.
  [[nodiscard]] std::int64_t count() const { return batch.count() * heads.count() * rows.count; }
};

// Those that this rank takes part in, in an order that all ranks know.
std::vector<Meeting> find_meetings(std::span<const Piece> pieces,
                                   const std::vector<PassPlan>& passes, layout::Range chunks,
                                   std::int64_t per_key_head, int rank);

// Copies what the later part has of them: a tensor [batch, heads, rows, ...] of the part.
void take_meeting(const Meeting& meeting, const ConstView& of_later, std::byte*& to);

// Of one of its slices, as the first part sees it: where it lies in a message, or in the later part itself.
FoundRows met_in_message(const Meeting& meeting, std::int64_t slice, std::span<const RowRun> runs);
FoundRows met_in_part(const Meeting& meeting, std::int64_t slice, std::int64_t later_rows,
                      std::span<const RowRun> runs);

}  // namespace treadle::distributed
