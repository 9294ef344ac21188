// The memory of a forward task: that of its tiles, and what they share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "plan/mod_plan.h"
#include "plan/schedule.h"
#include "run/fetch_ahead.h"
#include "run/forward_kernels.h"
#include "run/key_blocks.h"
#include "run/queries.h"
#include "run/tile.h"

namespace treadle::run {

// One tile of a group at work.
template <class F>
struct ForwardTile {
  plan::Entry entry;
  const ForwardKernels::OfTile* kernels = nullptr;
  Queries queries;
  F* lanes = nullptr;        // [dim][width]: Q^T, scaled
  TileState<F> part, total;  // of this chunk; of all chunks before
  bool started = false;      // total holds something
  bool chunk_begun = false;  // part holds something
  TileState<F> joined;       // of passes and terms before, if there are several
  bool has_joined = false;
  std::span<const layout::Run> runs;
  std::size_t next_run = 0;  // the first that may reach into the next block

  [[nodiscard]] std::int64_t width() const { return kernels->plan.width(); }

  // total = total, then other: merge() of run/tile.h.
  void merge(const TileState<F>& other) { merge(total, other); }
  // joined = joined, then total.
  void join() {
    if (has_joined) {
      merge(joined, total);
    } else {
      std::swap(joined, total);
    }
    has_joined = true;
  }

 private:
  void merge(const TileState<F>& into, const TileState<F>& other) {
    kernels->merge({.maximum = into.maximum,
                    .weight = into.weight,
                    .sums = into.sums,
                    .part_maximum = other.maximum,
                    .part_weight = other.weight,
                    .part_sums = other.sums});
  }
};

template <class F>
struct ForwardRoom {
  F *scores = nullptr, *rows = nullptr, *factors = nullptr;
  std::int32_t* chunk_ends = nullptr;  // [key_block]
  std::byte *staged = nullptr, *frame = nullptr;
  typename KeyBlocks<F>::Room block;
  FetchAhead ahead;  // for kernels of sparse plans

  // `joins`: there are several passes or terms.
  void carve(Carver& carver, std::span<ForwardTile<F>> tiles, const plan::ModScratch& mods,
             bool joins) {
    std::int64_t width = 0;
    const plan::TilePlan& plan = tiles.front().kernels->plan;
    for (ForwardTile<F>& tile : tiles) {
      tile.queries = Queries::carve(carver, tile.width());
      tile.lanes = carver.take<F>(tile.width() * plan.dim);
      tile.part = TileState<F>::carve(carver, tile.width(), plan.value_dim);
      tile.total = TileState<F>::carve(carver, tile.width(), plan.value_dim);
      if (joins) tile.joined = TileState<F>::carve(carver, tile.width(), plan.value_dim);
      width = std::max(width, tile.width());
    }
    scores = carver.take<F>(plan.key_block * width);
    chunk_ends = carver.take<std::int32_t>(plan.key_block);
    staged = carver.take<std::byte>(mods.staged * plan.key_block * width);
    frame = carver.take<std::byte>(mods.frame);
    block = KeyBlocks<F>::Room::carve(carver, plan);
    factors = carver.take<F>(width);
    rows = carver.take<F>(width * std::max(plan.dim, plan.value_dim));
    ahead = FetchAhead::carve(carver);
  }
};

}  // namespace treadle::run
