// Tiles against keys: chunk by chunk, block by block, run by run. Read run() first.
#include "run/forward_keys.h"

#include <algorithm>

#include "plan/chunks.h"

namespace treadle::run {
namespace {

std::int64_t count_full(std::span<const BlockRun> runs, std::int64_t begin, std::int64_t end) {
  std::int64_t full = 0;
  for (const BlockRun& run : runs)
    if (run.full && run.begin < end && run.end > begin)
      full += std::min(run.end, end) - std::max(run.begin, begin);
  return full;
}

}  // namespace

template <class F>
struct ForwardKeys<F>::OpenChunk {
  std::int64_t chunk = -1;
  bool begun = false;    // tile.part has sums of it
  std::int64_t end = 0;  // of its keys

  OpenChunk() = default;
  OpenChunk(std::int64_t number, bool has_sums)
      : chunk(number), begun(has_sums), end(plan::keys_of_chunk(number).end) {}
};

template <class F>
ForwardKeys<F>::ForwardKeys(ForwardShared& shared, const plan::Task& task, BlockLists& lists)
    : shared_(shared),
      problem_(shared.problem),
      task_(task),
      cuts_(shared, task),
      blocks_(problem_.keys, shared.pass.widest().plan, shared.pass.kernels().load_k,
              shared.pass.kernels().load_v, task.b, task.key_head, lists),
      dim_(shared.pass.widest().plan.dim),
      value_dim_(shared.pass.widest().plan.value_dim) {}

template <class F>
void ForwardKeys<F>::use(const ForwardRoom<F>& room, std::span<ForwardTile<F>> tiles) {
  room_ = room;
  tiles_ = tiles;
  blocks_.use(room.block);
}

template <class F>
void ForwardKeys<F>::look_at(std::size_t term) {
  term_number_ = term;
  term_ = &shared_.pass.terms[term];
  for (ForwardTile<F>& tile : tiles_) {
    tile.kernels = &term_->kernels.tile(tile.kernels->plan.vectors);
    tile.runs = term_->layout.runs(task_.b, tile.entry.head, tile.entry.tile);
    tile.next_run = 0;
    tile.started = false;
  }
  exactly_ = false;
}

// A tile against some places of the current block, all full or all partial, of one chunk, or of
// several whole ones.
template <class F>
void ForwardKeys<F>::run_places(ForwardTile<F>& tile, const BlockRun& run, bool exact,
                                std::int64_t chunks) {
  const KeyBlock<F>& block = blocks_.now();
  const TileState<F>& state = chunks > 0 ? tile.total : tile.part;
  tile.kernels->block(run.full, exact)({.tile = {.keys = block.keys + run.begin * dim_,
                                                 .values = block.values + run.begin * value_dim_,
                                                 .key_positions = block.positions + run.begin,
                                                 .count = run.end - run.begin,
                                                 .queries = tile.lanes,
                                                 .positions = tile.queries.positions,
                                                 .active = tile.entry.queries,
                                                 .b = task_.b,
                                                 .h = tile.entry.head,
                                                 .score_captures = problem_.score_captures.data(),
                                                 .mask_captures = term_->mask_captures.data(),
                                                 .staged = room_.staged,
                                                 .frame = room_.frame,
                                                 .poisoned = &poisoned_},
                                        .scores = room_.scores,
                                        .sums = tile.part.sums,
                                        .maximum = state.maximum,
                                        .weight = state.weight,
                                        .chunk_ends = room_.chunk_ends,
                                        .chunks = chunks,
                                        .totals = tile.total.sums});
  shared_.poisoned.note(poisoned_, {task_.b, tile.entry.head, tile.entry.tile, term_number_});
}

// Whether the task's tiles look at different keys.
template <class F>
bool ForwardKeys<F>::are_apart(layout::Range keys) {
  if (tiles_.size() == 1) return true;
  // Different residue classes; looking at their keys would take longer than this.
  const layout::Order& order = term_->layout.tiles().order();
  const auto residue = [&](const ForwardTile<F>& tile) {
    return term_->layout.tiles().axis(tile.entry.tile).low % order.modulus;
  };
  if (order.kind == layout::Order::Kind::residue &&
      residue(tiles_.front()) != residue(tiles_.back()))
    return true;
  blocks_.clear();
  for (const ForwardTile<F>& tile : tiles_) blocks_.want(tile.runs, keys);
  const typename KeyBlocks<F>::Wanted wanted = blocks_.start();
  const double each = static_cast<double>(wanted.sum) / static_cast<double>(tiles_.size());
  return static_cast<double>(wanted.keys) > plan::most_shared * each;
}

// All tiles, chunk by chunk and block by block.
template <class F>
void ForwardKeys<F>::run_together(layout::Range chunks) {
  for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    shared_.workers.check();
    blocks_.clear();
    for (ForwardTile<F>& tile : tiles_) {
      tile.part.clear(tile.width(), value_dim_);
      tile.part_is_zero = false;
      blocks_.want(tile.runs, plan::keys_of_chunk(chunk));
    }
    blocks_.start();
    while (blocks_.next()) {
      for (ForwardTile<F>& tile : tiles_)
        for (const BlockRun& run : blocks_.runs_of(tile.runs, tile.next_run))
          run_places(tile, run, false);
    }
    for (ForwardTile<F>& tile : tiles_) end_chunk(tile, chunk);
  }
}

// One tile. Its blocks may hold keys of several chunks: a sparse one has few keys of each.
template <class F>
void ForwardKeys<F>::run_alone(ForwardTile<F>& tile, layout::Range chunks, bool exact) {
  shared_.workers.check();
  blocks_.clear();
  blocks_.want(tile.runs, plan::keys_of_chunks(chunks));
  blocks_.start();
  OpenChunk open;
  while (blocks_.next()) {
    const auto runs = blocks_.runs_of(tile.runs, tile.next_run);
    const std::int32_t* positions = blocks_.now().positions;
    WholeChunks whole;
    for (std::int64_t place = 0; place < blocks_.now().count;) {
      if (positions[place] >= open.end) open = {plan::chunk_of(positions[place]), false};
      const std::int64_t last = blocks_.now().count;
      const std::int64_t end =
          positions[last - 1] < open.end
              ? last
              : std::lower_bound(positions + place, positions + last, open.end) - positions;
      const bool ends = end < last || !blocks_.more_before(open.end);
      const std::int64_t full = count_full(runs, place, end);
      const bool is_full = full == end - place;
      // A call for the whole chunk, if one kernel does it: in full runs the mask is not asked, which
      // for listed keys might say no.
      if (ends && !open.begun && !exact && !cuts_.are_kept() && (is_full || full == 0)) {
        if (whole.chunks > 0 && whole.places.full != is_full) run_whole(tile, whole);
        if (whole.chunks == 0) whole.places = {place, end, is_full};
        whole.places.end = end;
        room_.chunk_ends[whole.chunks++] = static_cast<std::int32_t>(end - whole.places.begin);
      } else {
        run_whole(tile, whole);
        run_part(tile, {place, end}, runs, open, exact);
        if (ends) end_chunk(tile, open.chunk);
      }
      place = end;
    }
    run_whole(tile, whole);
  }
}

// Chunks whose keys are all in the block, added to those before.
template <class F>
void ForwardKeys<F>::run_whole(ForwardTile<F>& tile, WholeChunks& whole) {
  if (whole.chunks == 0) return;
  if (!tile.started) tile.total.clear(tile.width(), value_dim_);
  tile.started = true;
  if (!tile.part_is_zero) tile.part.clear(tile.width(), value_dim_);
  tile.part_is_zero = true;
  run_places(tile, whole.places, false, whole.chunks);
  whole.chunks = 0;
}

// Places of one chunk, which go on with its sums.
template <class F>
void ForwardKeys<F>::run_part(ForwardTile<F>& tile, layout::Range places,
                              std::span<const BlockRun> runs, OpenChunk& open, bool exact) {
  if (!open.begun) tile.part.clear(tile.width(), value_dim_);
  open.begun = true;
  tile.part_is_zero = false;
  for (const BlockRun& run : runs) {
    const BlockRun some{std::max(run.begin, places.begin), std::min(run.end, places.end), run.full};
    if (some.begin < some.end) run_places(tile, some, exact);
  }
}

// All of the task's chunks, some at a time, so that lists of keys stay short.
template <class F>
void ForwardKeys<F>::run() {
  for (layout::Range some = task_.chunks; some.begin < task_.chunks.end; some.begin = some.end) {
    some.end = std::min(some.begin + plan::chunks_at_once, task_.chunks.end);
    if (!are_apart(plan::keys_of_chunks(some))) {
      run_together(some);
      continue;
    }
    for (ForwardTile<F>& tile : tiles_) {
      if (cuts_.are_kept()) {  // also those chunks that it has no keys of
        tile.part.clear(tile.width(), value_dim_);
        for (std::int64_t chunk = some.begin; chunk < some.end; ++chunk) end_chunk(tile, chunk);
      }
      run_alone(tile, some, false);
    }
  }
}

// What a cut task has of the chunk is saved, what others have joins the chunks before.
template <class F>
void ForwardKeys<F>::end_chunk(ForwardTile<F>& tile, std::int64_t chunk) {
  if (cuts_.are_kept() && !exactly_) {
    cuts_.save(tile, static_cast<std::size_t>(&tile - tiles_.data()), chunk);
  } else {
    merge_chunk(tile);
  }
}

// The chunk's sums join those before them.
template <class F>
void ForwardKeys<F>::merge_chunk(ForwardTile<F>& tile) {
  if (!tile.started) {
    std::swap(tile.part, tile.total);
    tile.started = true;
  } else {
    tile.merge(tile.part);
  }
}

// Somewhere is an infinity or a NaN: again, keeping hidden keys apart from visible ones.
template <class F>
void ForwardKeys<F>::run_exactly(ForwardTile<F>& tile) {
  exactly_ = true;
  tile.started = false;
  tile.next_run = 0;
  layout::Range chunks;
  if (!tile.runs.empty())
    chunks = plan::chunks_of({tile.runs.front().begin(), tile.runs.back().end()});
  for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk)
    run_alone(tile, {chunk, chunk + 1}, true);
  if (!tile.started) tile.total.clear(tile.width(), value_dim_);
}

template class ForwardKeys<float>;
template class ForwardKeys<double>;

}  // namespace treadle::run
