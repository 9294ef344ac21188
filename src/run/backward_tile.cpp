// Loading a tile of a backward task.
#include "run/backward_tile.h"

#include <algorithm>
#include <limits>

namespace treadle::run {

template <class F>
typename BackwardTile<F>::Room BackwardTile<F>::Room::carve(Carver& carver,
                                                            const plan::TilePlan& plan) {
  const std::int64_t width = plan.width();
  Room room;
  room.queries = Queries::carve(carver, width);
  room.q_lanes = carver.take<F>(width * plan.dim);
  room.dout_lanes = carver.take<F>(width * plan.value_dim);
  room.lse2 = carver.take<F>(width);
  room.delta = carver.take<F>(width);
  room.takes_part = carver.take<F>(width);
  room.dq = carver.take<F>(width * plan.dim);
  room.dq_total = carver.take<F>(width * plan.dim);
  return room;
}

template <class F>
void BackwardTile<F>::load(const BackwardShared<F>& shared, F* factors) const {
  const BackwardKernels& kernels = shared.kernels;
  const BackwardProblem& problem = shared.problem;
  const plan::TilePlan& plan = kernels.plan;
  const std::int64_t width = plan.width();
  const std::int64_t active = entry.queries;
  room.queries.find(shared.pass.layout, entry.tile, entry.first_query, active, width);

  const auto load_padded = [&](const CopyKernel& copy, const ConstView& from, F* to,
                               std::int64_t length) {
    load_rows(copy, from, b, entry.head, room.queries.rows, active, to, length);
    std::fill(to + active * length, to + width * length, F{0});
  };
  load_padded(kernels.load_q, problem.q, room.q_rows, padded(plan, plan.dim));
  load_padded(kernels.load_out, problem.dout, room.dout_rows, padded(plan, plan.value_dim));

  std::fill_n(factors, width, static_cast<F>(problem.scale * kernels.query_factor));
  kernels.queries_to_lanes({.source = room.q_rows, .target = room.q_lanes, .factors = factors});
  std::fill_n(factors, width, F{1});
  kernels.dout_to_lanes({.source = room.dout_rows, .target = room.dout_lanes, .factors = factors});

  constexpr F infinity = std::numeric_limits<F>::infinity();
  const std::int64_t first = (b * problem.q.size(1) + entry.head) * problem.q.size(2);
  for (std::int64_t i = 0; i < width; ++i) {
    room.lse2[i] = i < active ? shared.terms.lse2[first + room.queries.rows[i]] : infinity;
    room.delta[i] = i < active ? shared.terms.delta[first + room.queries.rows[i]] : F{0};
  }
  const ConstView& lse = problem.lse;
  const F* lse_of =
      static_cast<const F*>(lse.data()) + b * lse.stride(0) + entry.head * lse.stride(1);
  for (std::int64_t i = 0; shared.exact && i < width; ++i) {
    const bool takes_part = i < active && lse_of[room.queries.rows[i] * lse.stride(2)] != -infinity;
    room.takes_part[i] = takes_part ? F{1} : F{0};
  }
  std::fill_n(shared.schedule.completes_dq ? room.dq_total : room.dq, width * plan.dim, F{0});
}

template struct BackwardTile<float>;
template struct BackwardTile<double>;

}  // namespace treadle::run
