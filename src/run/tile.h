// What a tile of queries knows while keys pass by, and how two such states become one.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "layout/layout.h"
#include "run/scratch.h"

namespace treadle::run {

// Arrays of `width` lanes: maximum (in powers of two), sum of weights, and value_dim rows of
// weighted values, both relative to 2^ceil(maximum). Nothing seen: -inf, 0, 0.
template <class F>
struct TileState {
  F* maximum = nullptr;
  F* weight = nullptr;
  F* sums = nullptr;

  static TileState carve(Carver& carver, std::int64_t width, std::int64_t value_dim);
  void clear(std::int64_t width, std::int64_t value_dim);
};

// total = total, then part. Powers of two scale exactly, so only the sums themselves round.
template <class F>
void merge(const TileState<F>& total, const TileState<F>& part, std::int64_t width,
           std::int64_t value_dim);

// One tile of a group at work.
template <class F>
struct Tile {
  std::int64_t head = 0, tile = 0;
  std::int64_t first_query = 0;  // of the layout's tile
  int vectors = 1;
  std::int64_t width = 0;        // lanes
  std::int64_t active = 0;       // queries
  std::int32_t* rows = nullptr;  // which they are; the last one fills the remaining lanes
  F* queries = nullptr;          // [dim][width]
  TileState<F> part, total;      // of this chunk; of all chunks before
  bool started = false;          // total holds something
  std::span<const layout::Run> runs;
  std::size_t next_run = 0;  // the first that may reach into the next block
};

}  // namespace treadle::run
