// What becomes of a tile when its keys are done: results, or states for the next pass.
#pragma once

#include <cstdint>

#include "run/forward_room.h"
#include "run/forward_worker.h"
#include "run/row_states.h"

namespace treadle::run {

template <class F>
class ForwardResults {
 public:
  // For tiles of batch b. The room lends rows and factors.
  ForwardResults(const ForwardShared& shared, std::int64_t b, const ForwardRoom<F>& room)
      : shared_(shared),
        problem_(shared.problem),
        b_(b),
        room_(room),
        value_dim_(shared.pass.widest().plan.value_dim) {}

  // Rows, lse and max of a tile that is complete. False, and nothing done, if there is a NaN whose
  // origin has to be looked into, unless this is the last try.
  bool write(const ForwardTile<F>& tile, bool last_try) const;

  // Of several passes or terms: finds what passes before left; looks for a NaN whose origin has to be
  // looked into; and, when all terms are joined, leaves the tile to the next pass or writes it.
  void begin(ForwardTile<F>& tile) const;
  [[nodiscard]] bool is_clean(const ForwardTile<F>& tile) const;
  void end(ForwardTile<F>& tile) const;

 private:
  [[nodiscard]] RowStates<F> rows_of(const ForwardTile<F>& tile) const;

  const ForwardShared& shared_;
  const ForwardProblem& problem_;
  std::int64_t b_;
  const ForwardRoom<F>& room_;
  std::int64_t value_dim_;
};

}  // namespace treadle::run
