// The memory of a backward task, but for contributions to captures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "plan/mod_plan.h"
#include "plan/reduce_kernel.h"
#include "run/backward_tile.h"
#include "run/fetch_ahead.h"
#include "run/key_blocks.h"
#include "run/queries.h"
#include "run/query_sum.h"

namespace treadle::run {

template <class F>
struct BackwardRoom {
  std::span<typename BackwardTile<F>::Room> tiles;
  BackwardTile<F>* group = nullptr;  // [tiles]
  layout::Range* places = nullptr;   // [tiles]: of the current block, that it looks at
  F *probabilities = nullptr, *dscores = nullptr;  // [tiles][block_rows][width]: P, dS
  F *q_rows = nullptr, *dout_rows = nullptr;       // [tiles][width][dim], padded
  QuerySum<F> dk, dv;
  Queries delivered;                   // of a tile whose dQ is complete
  F* dq_rows = nullptr;                // [width][dim], its rows
  F* factors = nullptr;                // [width]
  std::int32_t* chunk_ends = nullptr;  // [key_block]
  FetchAhead ahead;                    // for kernels of sparse plans
  std::byte *staged = nullptr, *frame = nullptr;
  typename KeyBlocks<F>::Room block;

  // For tasks of at most so many keys, against so many leaves of queries.
  void carve(Carver& carver, const plan::TilePlan& plan, std::int64_t keys, std::int64_t leaves,
             const plan::ModScratch& mods) {
    const std::int64_t count = plan::tiles_per_backward_group(plan);
    const std::int64_t width = plan.width();
    const std::int64_t dim = padded(plan, plan.dim), value_dim = padded(plan, plan.value_dim);
    const std::int64_t rows = block_rows(plan);
    auto* rooms = carver.take<typename BackwardTile<F>::Room>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto room = BackwardTile<F>::Room::carve(carver, plan);
      if (rooms != nullptr) std::construct_at(rooms + i, room);  // not while measuring
    }
    if (rooms != nullptr) tiles = {rooms, static_cast<std::size_t>(count)};
    group = carver.take<BackwardTile<F>>(count);
    places = carver.take<layout::Range>(count);
    probabilities = carver.take<F>(count * rows * width);
    dscores = carver.take<F>(count * rows * width);
    staged = carver.take<std::byte>(mods.staged * plan.key_block * width);
    frame = carver.take<std::byte>(mods.frame);
    q_rows = carver.take<F>(count * width * dim);
    dout_rows = carver.take<F>(count * width * value_dim);
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      tiles[i].q_rows = q_rows + static_cast<std::int64_t>(i) * width * dim;
      tiles[i].dout_rows = dout_rows + static_cast<std::int64_t>(i) * width * value_dim;
    }
    delivered = Queries::carve(carver, width);
    dq_rows = carver.take<F>(width * plan.dim);
    factors = carver.take<F>(width);
    chunk_ends = carver.take<std::int32_t>(plan.key_block);
    dk.carve(carver, plan, plan.dim, keys, leaves);
    dv.carve(carver, plan, plan.value_dim, keys, leaves);
    block = KeyBlocks<F>::Room::carve(carver, plan);
    ahead = FetchAhead::carve(carver);
  }
};

}  // namespace treadle::run
