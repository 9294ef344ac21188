// RowStates: m, l and O of every query between two passes over them, by row.
//
// Passes have tiles of different queries, so what one leaves to the next is kept query by query.
#pragma once

#include <cstdint>

#include "run/rows.h"
#include "run/scratch.h"
#include "run/tile.h"

namespace treadle::run {

template <class F>
struct RowStates {
  F* maximum = nullptr;  // m: [rows]
  F* weight = nullptr;   // l: [rows]
  F* sums = nullptr;     // O: [rows][value_dim]

  static RowStates carve(Carver& carver, std::int64_t rows, std::int64_t value_dim) {
    return {carver.take<F>(rows), carver.take<F>(rows), carver.take<F>(rows * value_dim)};
  }
  // Those from row `first` on.
  [[nodiscard]] RowStates from(std::int64_t first, std::int64_t value_dim) const {
    return {maximum + first, weight + first, sums + first * value_dim};
  }
};

// Of the rows of a call, [batch, heads, rows] and [batch, heads, rows, value_dim], contiguous and of
// the compute type: what a call leaves that others will join with states of the same rows.
struct StateViews {
  void *maximum = nullptr, *weight = nullptr, *sums = nullptr;
};

// What a tile has, lane by lane, to rows index[0] .. index[count - 1]; its O is in `sums`, by row.
template <class F>
void keep_rows(const RowStates<F>& states, const CopyKernel& copy, const TileState<F>& tile,
               const F* sums, const std::int32_t* index, std::int64_t count,
               std::int64_t value_dim) {
  for (std::int64_t i = 0; i < count; ++i) {
    states.maximum[index[i]] = tile.maximum[i];
    states.weight[index[i]] = tile.weight[i];
  }
  const std::int64_t stride = value_dim * static_cast<std::int64_t>(sizeof(F));
  copy({.source = sums,
        .source_stride = stride,
        .source_index = nullptr,
        .target = states.sums,
        .target_stride = stride,
        .target_index = index,
        .count = count});
}

// And back.
template <class F>
void find_rows(const RowStates<F>& states, const CopyKernel& copy, const TileState<F>& tile,
               F* sums, const std::int32_t* index, std::int64_t count, std::int64_t value_dim) {
  const std::int64_t stride = value_dim * static_cast<std::int64_t>(sizeof(F));
  copy({.source = states.sums,
        .source_stride = stride,
        .source_index = index,
        .target = sums,
        .target_stride = stride,
        .target_index = nullptr,
        .count = count});
  for (std::int64_t i = 0; i < count; ++i) {
    tile.maximum[i] = states.maximum[index[i]];
    tile.weight[i] = states.weight[index[i]];
  }
}

}  // namespace treadle::run
