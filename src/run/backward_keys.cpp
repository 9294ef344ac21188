// Tiles against keys: block by block, tile by tile, run by run. Read run() first.
#include "run/backward_keys.h"

#include <algorithm>

#include "plan/chunks.h"
#include "run/nonfinite.h"
#include "run/shared_places.h"

namespace treadle::run {
namespace {

// Tiles whose keys, taken together, are so many times those of one of them have nothing in common
// that is worth a block of its own.
constexpr double apart = 3;

}  // namespace

template <class F>
BackwardKeys<F>::BackwardKeys(BackwardShared<F>& shared, const plan::BackwardTask& task,
                              BlockLists& lists, TaskGradients<F>& gradients)
    : shared_(shared),
      problem_(shared.problem),
      blocks_(problem_.keys, shared.kernels.plan, shared.kernels.load_k, shared.kernels.load_v,
              task.key_batch, task.key_head, lists),
      gradients_(gradients) {}

template <class F>
void BackwardKeys<F>::use(BackwardRoom<F>& room) {
  room_ = &room;
  blocks_.use(room.block);
}

template <class F>
void BackwardKeys<F>::look_at(std::span<BackwardTile<F>> tiles) {
  tiles_ = tiles;
  if (!shared_.exact) return;
  const auto rows = static_cast<std::int64_t>(tiles.size()) * width();
  exact_queries_ = has_nonfinite(room_->q_rows, rows * padded(plan(), plan().dim));
  exact_dout_ = has_nonfinite(room_->dout_rows, rows * padded(plan(), plan().value_dim));
}

// A tile against some places of the current block, all full or all partial, of one chunk, or of
// several whole ones.
template <class F>
void BackwardKeys<F>::run_places(std::size_t number, const BlockRun& run, F* dq,
                                 std::int64_t chunks) {
  const BackwardTile<F>& tile = tiles_[number];
  const KeyBlock<F>& block = blocks_.now();
  const std::int64_t place = first(number) + run.begin * width();
  plan::BackwardKernelArgs args{
      .tile = {.keys = block.keys + run.begin * plan().dim,
               .values = block.values + run.begin * plan().value_dim,
               .key_positions = block.positions + run.begin,
               .count = run.end - run.begin,
               .queries = tile.room.q_lanes,
               .positions = tile.room.queries.positions,
               .active = tile.entry.queries,
               .b = shared_.pass.layout.extent().first_b + tile.b,
               .h = shared_.pass.layout.extent().first_h + tile.entry.head,
               .score_captures = problem_.score_captures.data(),
               .mask_captures = shared_.pass.mask_captures.data(),
               .staged = room_->staged,
               .frame = room_->frame,
               .dropout = &problem_.dropout,
               .poisoned = &poisoned_},
      .dout = tile.room.dout_lanes,
      .lse2 = tile.room.lse2,
      .delta = tile.room.delta,
      .takes_part = tile.room.takes_part,
      .probabilities = room_->probabilities + place,
      .dscores = room_->dscores + place,
      .dq = dq,
      .chunk_ends = room_->chunk_ends,
      .chunks = chunks,
      .fetch = room_->ahead.list(),
      .derivative_captures = problem_.derivative_captures.data(),
      .gradient_strides = problem_.gradient_strides.data()};
  gradients_.set(args, number, run);
  shared_.kernels.block(run.full, shared_.exact)(args);
  if (!gradients_.take(number, run, tile.entry.queries)) shared_.nan = true;
  shared_.poisoned.note(poisoned_, {tile.b, tile.entry.head, tile.entry.tile});
}

// P and dS of places that a tile does not look at are zero.
template <class F>
void BackwardKeys<F>::hide(std::int64_t tile, layout::Range places) {
  if (places.empty()) return;
  const F hidden = shared_.exact ? -F{0} : F{0};  // exact products skip -0
  for (F* values : {room_->probabilities, room_->dscores}) {
    F* own = values + first(static_cast<std::size_t>(tile));
    std::fill(own + places.begin * width(), own + places.end * width(), hidden);
  }
}

// A tile against what it sees of the current block, chunk by chunk.
template <class F>
void BackwardKeys<F>::run_chunks(std::size_t number, std::span<const BlockRun> all) {
  BackwardTile<F>& tile = tiles_[number];
  const std::int64_t size = width() * plan().dim;
  for_each_chunk(
      parts_, all, {.at_once = plan().sparse && !shared_.exact, .ends = room_->chunk_ends},
      tile.chunk_begun,
      [&](const BlockRun& places, std::int64_t chunks) {
        run_places(number, places, tile.room.dq_total, chunks);
      },
      [&](layout::Range places, std::span<const BlockRun> runs) {
        if (!tile.chunk_begun) std::fill_n(tile.room.dq, size, F{0});
        tile.chunk_begun = true;
        for (const BlockRun& run : runs) {
          const BlockRun some{std::max(run.begin, places.begin), std::min(run.end, places.end),
                              run.full};
          if (some.begin >= places.end) break;
          if (some.begin < some.end) run_places(number, some, tile.room.dq);
        }
      },
      [&](std::int64_t) {
        for (std::int64_t i = 0; i < size; ++i) tile.room.dq_total[i] += tile.room.dq[i];
        tile.chunk_begun = false;
      });
}

// A tile's P and dS for the current block. Returns a range around the places that it looks at; those
// between are hidden.
template <class F>
layout::Range BackwardKeys<F>::run_tile(std::size_t number) {
  BackwardTile<F>& tile = tiles_[number];
  const std::span<const BlockRun> runs = blocks_.runs_of(tile.runs, tile.next_run);
  if (runs.empty()) {
    // A chunk that it saw in blocks before may end here.
    if (tile.chunk_begun) run_chunks(number, runs);
    return {};
  }
  for (std::size_t i = 1; i < runs.size(); ++i)
    hide(static_cast<std::int64_t>(number), {runs[i - 1].end, runs[i].begin});
  const layout::Range looked_at{runs.front().begin, runs.back().end};
  if (all_chunks_) {
    run_chunks(number, runs);
  } else {
    for (const BlockRun& run : runs) run_places(number, run, tile.room.dq);
  }
  return looked_at;
}

// Sums over queries go through all tiles at once if most of what is added then is not zero, and take
// whole steps of places: what they read beyond those that a tile looks at is hidden.
template <class F>
void BackwardKeys<F>::widen_places(layout::Range tiles) {
  layout::Range all;
  std::int64_t sum = 0;
  for (std::int64_t i = tiles.begin; i < tiles.end; ++i) {
    const layout::Range& places = room_->places[i];
    if (places.empty()) continue;
    sum += places.count();
    all = all.empty()
              ? places
              : layout::Range(std::min(all.begin, places.begin), std::max(all.end, places.end));
  }
  const bool together = static_cast<double>(tiles.count() * all.count()) <
                        plan::most_shared * static_cast<double>(sum);
  const std::int64_t steps[]{shared_.kernels.dk_spec.rows_at_once(),
                             shared_.kernels.dv_spec.rows_at_once()};
  for (std::int64_t i = tiles.begin; i < tiles.end; ++i) {
    layout::Range& places = room_->places[i];
    if (places.empty() && !together) continue;
    const layout::Range own = places.empty() ? layout::Range(all.begin, all.begin) : places;
    if (together) places = all;
    layout::Range read = places;
    for (const std::int64_t step : steps) {
      read.begin = std::min(read.begin, places.begin / step * step);
      read.end = std::max(read.end, (places.end + step - 1) / step * step);
    }
    hide(i, {read.begin, own.begin});
    hide(i, {own.end, read.end});
  }
}

// Some tiles of the group against the current block, and what that adds to dK and dV.
template <class F>
void BackwardKeys<F>::run_block(layout::Range tiles, bool last_of_leaf) {
  const BackwardKernels& kernels = shared_.kernels;
  if (all_chunks_) parts_ = find_chunks(blocks_, chunks_);
  gradients_.start_block();
  for (std::int64_t i = tiles.begin; i < tiles.end; ++i)
    room_->places[i] = run_tile(static_cast<std::size_t>(i));
  widen_places(tiles);
  const std::span<const layout::Range> places(room_->places + tiles.begin,
                                              static_cast<std::size_t>(tiles.count()));
  const auto add = [&](QuerySum<F>& sum, const LazyKernel<plan::ReduceArgs>& kernel,
                       const plan::ReduceSpec& spec, const F* a, const F* b) {
    const std::int64_t a_tile = block_rows(plan()) * width(), b_tile = width() * spec.length;
    sum.start_block(blocks_.now().segments);
    for_each_shared(places, spec.rows_at_once(), [&](layout::Range some, layout::Range rows) {
      const std::int64_t first_tile = tiles.begin + some.begin;
      sum.add(
          kernel, spec,
          {a + first_tile * a_tile, b + first_tile * b_tile, some.count(), rows.begin, rows.end});
    });
    sum.end_block(last_of_leaf);
  };
  add(room_->dv, exact_dout_ ? kernels.exact_sum_dv : kernels.sum_dv, kernels.dv_spec,
      room_->probabilities, room_->dout_rows);
  add(room_->dk, exact_queries_ ? kernels.exact_sum_dk : kernels.sum_dk, kernels.dk_spec,
      room_->dscores, room_->q_rows);
  gradients_.add_block(blocks_.now().count);
}

// Blocks of keys that all of the group's tiles look at, or, where these look at different ones, a
// tile's own.
template <class F>
void BackwardKeys<F>::run(layout::Range keys, bool last_of_leaf) {
  const auto count = static_cast<std::int64_t>(tiles_.size());
  if (blocks_.start(tiles_, keys, apart)) {
    while (blocks_.next()) run_block({0, count}, last_of_leaf);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    blocks_.start(tiles_[static_cast<std::size_t>(i)].runs, keys);
    while (blocks_.next()) run_block({i, i + 1}, last_of_leaf && i + 1 == count);
  }
}

// Some chunks at a time, so that lists of keys stay short.
template <class F>
void BackwardKeys<F>::run_all(layout::Range chunks, bool last_of_leaf) {
  all_chunks_ = true;
  for (layout::Range some = chunks; some.begin < chunks.end; some.begin = some.end) {
    some.end = std::min(some.begin + plan::chunks_at_once, chunks.end);
    run(plan::keys_of_chunks(some), last_of_leaf);
  }
  all_chunks_ = false;
}

template class BackwardKeys<float>;
template class BackwardKeys<double>;

}  // namespace treadle::run
