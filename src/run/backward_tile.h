// A tile of a backward task: its queries and incoming gradients, as rows and as lanes, and its dQ.
#pragma once

#include <cstdint>
#include <span>

#include "plan/schedule.h"
#include "run/backward_worker.h"
#include "run/queries.h"
#include "run/wanted_keys.h"

namespace treadle::run {

template <class F>
struct BackwardTile {
  std::int64_t b = 0;
  plan::Entry entry;
  std::int64_t place = 0;  // where its dQ is delivered
  std::span<const layout::Run> runs;
  std::size_t next_run = 0;  // the first that may reach into the next block
  bool chunk_begun = false;  // room.dq holds something of a chunk that is not complete

  [[nodiscard]] bool looks_at(layout::Range keys) const {
    return entry.queries > 0 && reaches(runs, keys);
  }

  // Memory, [dim][width] and so on. Rows of the tiles of a group lie one after the other.
  struct Room {
    Queries queries;
    F *q_lanes = nullptr, *dout_lanes = nullptr;  // Q^T, scaled; dO^T
    F *q_rows = nullptr, *dout_rows = nullptr;    // padded
    F *lse2 = nullptr, *delta = nullptr;          // [width]
    F* takes_part = nullptr;                      // [width]: 1, or 0 if nothing was seen; if exact
    F *dq = nullptr, *dq_total = nullptr;  // of a chunk; of all, in tasks that have all of them

    static Room carve(Carver& carver, const plan::TilePlan& plan);
  };
  Room room;

  // Loads everything; lanes without a query are zeros that weigh nothing. dQ begins at zero: that of a chunk, or of all.
  // `factors` is room for a number per lane.
  void load(const BackwardShared<F>& shared, F* factors) const;
};

}  // namespace treadle::run
