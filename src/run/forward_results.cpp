// Tiles written as results, or kept as states of rows. Read write() first.
#include "run/forward_results.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "run/nonfinite.h"
#include "run/row_results.h"

namespace treadle::run {

// Results of a tile, transposed into rows and converted. False, and nothing written, if there is a
// NaN whose origin has to be looked into.
template <class F>
bool ForwardResults<F>::write(const ForwardTile<F>& tile, bool last_try) const {
  const TileState<F>& state = tile.total;
  const double* sink = problem_.sink(tile.entry.head);
  std::int32_t settles = 0;
  for (std::int64_t i = 0, width = tile.width(); i < width; ++i) {
    room_.factors[i] = factor_of(state.maximum[i], state.weight[i], sink, problem_.dropout.scale);
    settles |= sees_nothing(state.maximum[i]) ? 1 : 0;
  }
  tile.kernels->sums_to_rows({.source = state.sums,
                              .target = room_.rows,
                              .factors = room_.factors,
                              .nonfinite = &settles});
  bool clean = true;
  // Of rows that see something, and are finite, there is nothing to settle.
  for (std::int64_t i = 0; settles != 0 && i < tile.entry.queries; ++i) {
    F* row = room_.rows + i * value_dim_;
    clean = settle(state.maximum[i], state.weight[i], row, value_dim_) && clean;
  }
  if (!clean && !last_try) return false;

  store_rows(shared_.pass.kernels().store_out, room_.rows, value_dim_, problem_.out, b_,
             tile.entry.head, tile.queries.rows, tile.entry.queries);
  const auto put = [&](const std::optional<View>& view, auto value_of) {
    put_rows<F>(view, b_, tile.entry.head, tile.queries.rows, tile.entry.queries, value_of);
  };
  put(problem_.max, [&](std::int64_t i) { return natural_maximum(state.maximum[i]); });
  put(problem_.lse,
      [&](std::int64_t i) { return natural_lse(state.maximum[i], state.weight[i], sink); });
  return true;
}

// Whether there is no NaN in a tile's state whose origin has to be looked into.
template <class F>
bool ForwardResults<F>::is_clean(const ForwardTile<F>& tile) const {
  const TileState<F>& state = tile.total;
  bool clean =
      !has_nan(state.weight, tile.width()) && !has_nan(state.sums, tile.width() * value_dim_);
  for (std::int64_t i = 0; i < tile.width(); ++i) {
    if (!sees_nothing(state.maximum[i])) continue;
    clean = clean && state.weight[i] == F{0};
    for (std::int64_t d = 0; d < value_dim_; ++d)
      clean = clean && state.sums[d * tile.width() + i] == F{0};
  }
  return clean;
}

// The rows of a tile's head.
template <class F>
RowStates<F> ForwardResults<F>::rows_of(const ForwardTile<F>& tile) const {
  const layout::Extent& extent = shared_.pass.layout().extent();
  if (const StateViews* given = problem_.states) {
    const std::int64_t rows = problem_.q.size(2);
    return RowStates<F>{static_cast<F*>(given->maximum), static_cast<F*>(given->weight),
                        static_cast<F*>(given->sums)}
        .from((b_ * extent.heads + tile.entry.head) * rows, value_dim_);
  }
  Carver carver(shared_.rows);
  const std::int64_t queries = extent.queries.count();
  return RowStates<F>::carve(carver, extent.batch * extent.heads * queries, value_dim_)
      .from((b_ * extent.heads + tile.entry.head) * queries, value_dim_);
}

template <class F>
void ForwardResults<F>::begin(ForwardTile<F>& tile) const {
  if (!shared_.order.continues(shared_.number, b_, tile.entry.head)) return;
  // Lanes without a query repeat the last one.
  find_rows(rows_of(tile), shared_.pass.kernels().copy_sums, tile.joined, room_.rows,
            tile.queries.rows, tile.width(), value_dim_);
  std::fill_n(room_.factors, tile.width(), F{1});
  tile.kernels->sums_to_lanes(
      {.source = room_.rows, .target = tile.joined.sums, .factors = room_.factors});
  tile.has_joined = true;
}

template <class F>
void ForwardResults<F>::end(ForwardTile<F>& tile) const {
  if (!tile.has_joined) tile.joined.clear(tile.width(), value_dim_);
  std::swap(tile.joined, tile.total);
  const bool leaves = shared_.order.leaves(shared_.number, b_, tile.entry.head);
  if (!leaves && problem_.states == nullptr) {
    write(tile, true);
    return;
  }
  std::fill_n(room_.factors, tile.width(), F{1});
  tile.kernels->sums_to_rows(
      {.source = tile.total.sums, .target = room_.rows, .factors = room_.factors});
  keep_rows(rows_of(tile), shared_.pass.kernels().copy_sums, tile.total, room_.rows,
            tile.queries.rows, tile.entry.queries, value_dim_);
}

template class ForwardResults<float>;
template class ForwardResults<double>;

}  // namespace treadle::run
