// The state of a tile of queries while keys pass by, and how two states become one.
#pragma once

#include <cstdint>

#include "run/scratch.h"

namespace treadle::run {

// Arrays of `width` lanes: m, the maximum in powers of two; l, the sum of weights; O, value_dim rows
// of weighted values. l and O are relative to 2^ceil(m). Nothing seen: -inf, 0, 0.
template <class F>
struct TileState {
  F* maximum = nullptr;  // m
  F* weight = nullptr;   // l
  F* sums = nullptr;     // O

  static TileState carve(Carver& carver, std::int64_t width, std::int64_t value_dim);
  void clear(std::int64_t width, std::int64_t value_dim);
};

// total = total, then part. Powers of two scale exactly, so only the sums themselves round.
template <class F>
void merge(const TileState<F>& total, const TileState<F>& part, std::int64_t width,
           std::int64_t value_dim);
// The same of one row, whose O is contiguous.
template <class F>
struct RowState {
  F *maximum, *weight, *sums;
};
template <class F>
void merge(const RowState<F>& total, const RowState<F>& part, std::int64_t value_dim);

}  // namespace treadle::run
