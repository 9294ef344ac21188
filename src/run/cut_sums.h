// CutSums: what the pieces of a cut task leave to one another: m, l and O of each chunk and tile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "run/forward_room.h"
#include "run/forward_worker.h"

namespace treadle::run {

template <class F>
class CutSums {
 public:
  CutSums(const ForwardShared& shared, const plan::Task& task) : shared_(shared), task_(task) {}

  // Whether the task is a piece of a cut one at all.
  [[nodiscard]] bool are_kept() const { return task_.cut >= 0; }

  // Of tile number `number` of the task.
  void save(const ForwardTile<F>& tile, std::size_t number, std::int64_t chunk) const {
    const TileState<F> kept = saved(tile, number, chunk);
    std::copy_n(tile.part.maximum, tile.width(), kept.maximum);
    std::copy_n(tile.part.weight, tile.width(), kept.weight);
    std::copy_n(tile.part.sums, tile.width() * value_dim(), kept.sums);
  }

  // All pieces are there: puts them together in order.
  void merge(ForwardTile<F>& tile, std::size_t number) const {
    tile.total.clear(tile.width(), value_dim());
    tile.started = true;
    const layout::Range chunks = cut().chunks;
    for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk)
      tile.merge(saved(tile, number, chunk));
  }

 private:
  [[nodiscard]] const plan::Cut& cut() const {
    return shared_.pass.schedule.cuts[static_cast<std::size_t>(task_.cut)];
  }
  [[nodiscard]] const plan::TilePlan& plan() const { return shared_.pass.widest().plan; }
  [[nodiscard]] std::int64_t value_dim() const { return plan().value_dim; }
  [[nodiscard]] TileState<F> saved(const ForwardTile<F>& tile, std::size_t number,
                                   std::int64_t chunk) const {
    const auto state =
        static_cast<std::size_t>((chunk - cut().chunks.begin) * cut().count) + number;
    Carver carver(shared_.partial + shared_.partial_offsets[static_cast<std::size_t>(task_.cut)] +
                  state * state_bytes(plan()));
    return TileState<F>::carve(carver, tile.width(), value_dim());
  }

  const ForwardShared& shared_;
  const plan::Task& task_;
};

}  // namespace treadle::run
