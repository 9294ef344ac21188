// Results of rows from what several parts found of them, in the order of one machine's call: terms of the mask in
// theirs, chunks of keys ascending.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/parallel.h"
#include "distributed/row_runs.h"
#include "layout/range.h"
#include "run/row_states.h"
#include "treadle/attention.h"

namespace treadle::distributed {

// What one slice of a part found of some rows: entry after entry, head after head, run after run (packed in the order of
// `runs`' rows, which count from `first_row`).
struct FoundRows {
  std::int64_t pass = 0, chunk = 0;  // its first
  layout::Range batch, heads;        // of queries
  std::span<const RowRun> runs;
  std::int64_t stride = 0;  // rows of a head in memory
  // Of the compute type: a state, [batch][heads][rows] and [batch][heads][rows][length]; or, of dQ, sums alone.
  const void *maximum = nullptr, *weight = nullptr, *sums = nullptr;
};

// Rows of one rank, whose first is that of position `first`.
struct RowsToJoin {
  std::span<const FoundRows> found;
  layout::Range positions;
};

// Writes the rows of which something was found to results with contiguous rows, or, if `states` are given, to those,
// which may be among the found ones: [batch][heads][positions].
void join_states(const RowsToJoin& rows, const backend::Sizes& sizes, std::span<const double> sinks,
                 double kept, const ForwardViews& results, const run::StateViews* states,
                 const base::Workers& workers);
// Of dQ: parts of a term add up, are scaled, and terms are added.
struct GradientsToJoin : RowsToJoin {
  double scale = 1;
};
void join_gradients(const GradientsToJoin& rows, const backend::Sizes& sizes, const View& dq,
                    const base::Workers& workers);

}  // namespace treadle::distributed
