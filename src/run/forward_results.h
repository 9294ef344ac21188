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
        value_dim_(shared.pass.kernels.widest().plan.value_dim) {}

  // False, and nothing done, if there is a NaN whose origin has to be looked into, unless this is
  // the last try.
  bool deliver(ForwardTile<F>& tile, bool last_try) const;

 private:
  bool write(const ForwardTile<F>& tile, bool last_try) const;
  [[nodiscard]] bool is_clean(const ForwardTile<F>& tile) const;
  [[nodiscard]] RowStates<F> rows_of(const ForwardTile<F>& tile) const;
  void merge_rows(ForwardTile<F>& tile) const;
  void leave_rows(const ForwardTile<F>& tile) const;

  const ForwardShared& shared_;
  const ForwardProblem& problem_;
  std::int64_t b_;
  const ForwardRoom<F>& room_;
  std::int64_t value_dim_;
};

}  // namespace treadle::run
