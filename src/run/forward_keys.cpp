// Tiles against keys: chunk by chunk, block by block, run by run. Read run() first.
#include "run/forward_keys.h"

#include <algorithm>

#include "plan/chunks.h"

namespace treadle::run {
namespace {

// What a tile sees of some places of a block.
struct Seen {
  std::int64_t begin = 0, end = 0;  // from the first to the last of them
  std::int64_t full = 0, partial = 0;

  // One kernel call does it. Where some keys are full and others are not, the mask is asked about all
  // of them, which for listed keys might say no where the list says yes.
  [[nodiscard]] bool is_even(bool listed) const {
    return full + partial == end - begin && (!listed || full == 0 || partial == 0);
  }
  [[nodiscard]] bool is_empty() const { return full + partial == 0; }
};

// Drops runs that end before the places: later ones ask no more.
Seen seen_of(std::span<const BlockRun>& runs, layout::Range places) {
  while (!runs.empty() && runs.front().end <= places.begin) runs = runs.subspan(1);
  Seen seen;
  for (const BlockRun& run : runs) {
    if (run.begin >= places.end) break;
    const std::int64_t begin = std::max(run.begin, places.begin);
    const std::int64_t end = std::min(run.end, places.end);
    if (seen.is_empty()) seen.begin = begin;
    seen.end = end;
    (run.full ? seen.full : seen.partial) += end - begin;
  }
  return seen;
}

}  // namespace

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
                                                 .b = term_->layout.extent().first_b + task_.b,
                                                 .h = tile.entry.head,
                                                 .score_captures = problem_.score_captures.data(),
                                                 .mask_captures = term_->mask_captures.data(),
                                                 .staged = room_.staged,
                                                 .frame = room_.frame,
                                                 .poisoned = &poisoned_},
                                        .scores = room_.scores,
                                        .sums = state.sums,
                                        .maximum = state.maximum,
                                        .weight = state.weight,
                                        .chunk_ends = room_.chunk_ends,
                                        .chunks = chunks,
                                        .fetch = room_.ahead.list()});
  shared_.poisoned.note(poisoned_, {task_.b, tile.entry.head, tile.entry.tile, term_number_});
}

// Tiles against the keys of blocks_.
template <class F>
void ForwardKeys<F>::run_blocks(std::span<ForwardTile<F>> tiles, bool exact) {
  for (ForwardTile<F>& tile : tiles) tile.chunk_begun = false;
  while (blocks_.next()) {
    shared_.workers.check();
    const std::span<const ChunkPlaces> parts = find_chunks();
    for (ForwardTile<F>& tile : tiles) run_block(tile, parts, exact);
  }
}

// The chunks that the keys of the current block are of.
template <class F>
std::span<const typename ForwardKeys<F>::ChunkPlaces> ForwardKeys<F>::find_chunks() {
  const std::int32_t* positions = blocks_.now().positions;
  const std::int64_t count = blocks_.now().count;
  std::size_t found = 0;
  for (std::int64_t place = 0; place < count;) {
    const std::int64_t chunk = plan::chunk_of(positions[place]);
    const std::int64_t keys_end = plan::keys_of_chunk(chunk).end;
    const std::int64_t end =
        positions[count - 1] < keys_end
            ? count
            : std::lower_bound(positions + place, positions + count, keys_end) - positions;
    chunks_[found++] = {chunk, {place, end}, end < count || !blocks_.more_before(keys_end)};
    place = end;
  }
  return std::span(chunks_).first(found);
}

// A tile against the current block, chunk by chunk. A sparse tile sees few keys of each: those that
// are all in the block, one after the other, are one call for as many chunks as there are.
template <class F>
void ForwardKeys<F>::run_block(ForwardTile<F>& tile, std::span<const ChunkPlaces> parts,
                               bool exact) {
  std::span<const BlockRun> runs = blocks_.runs_of(tile.runs, tile.next_run);
  const bool sums_chunks = tile.kernels->plan.sparse && !exact && !cuts_.are_kept();
  WholeChunks whole;
  for (const ChunkPlaces& part : parts) {
    const Seen seen = seen_of(runs, part.places);
    if (seen.is_empty() && !tile.chunk_begun) continue;
    if (sums_chunks && part.ends && !tile.chunk_begun && seen.is_even(term_->listed)) {
      const bool full = seen.partial == 0;
      if (whole.places.full != full || whole.places.end != seen.begin) run_whole(tile, whole);
      if (whole.chunks == 0) whole.places = {seen.begin, seen.end, full};
      whole.places.end = seen.end;
      room_.chunk_ends[whole.chunks++] = static_cast<std::int32_t>(seen.end - whole.places.begin);
      continue;
    }
    run_whole(tile, whole);
    run_part(tile, part.places, runs, exact);
    if (part.ends) end_chunk(tile, part.chunk);
  }
  run_whole(tile, whole);
}

// Chunks whose keys are all in the block, added to those before.
template <class F>
void ForwardKeys<F>::run_whole(ForwardTile<F>& tile, WholeChunks& whole) {
  if (whole.chunks == 0) return;
  if (!tile.started) tile.total.clear(tile.width(), value_dim_);
  tile.started = true;
  run_places(tile, whole.places, false, whole.chunks);
  whole.chunks = 0;
}

// Places of one chunk, which go on with its sums.
template <class F>
void ForwardKeys<F>::run_part(ForwardTile<F>& tile, layout::Range places,
                              std::span<const BlockRun> runs, bool exact) {
  if (!tile.chunk_begun) tile.part.clear(tile.width(), value_dim_);
  tile.chunk_begun = true;
  for (const BlockRun& run : runs) {
    const BlockRun some{std::max(run.begin, places.begin), std::min(run.end, places.end), run.full};
    if (some.begin >= places.end) break;
    if (some.begin < some.end) run_places(tile, some, exact);
  }
}

// All of the task's chunks, some at a time, so that lists of keys stay short.
template <class F>
void ForwardKeys<F>::run() {
  const bool by_class = order().kind == layout::Order::Kind::residue;
  const double most = by_class ? plan::most_shared_by_class : plan::most_shared;
  for (layout::Range some = task_.chunks; some.begin < task_.chunks.end; some.begin = some.end) {
    some.end = std::min(some.begin + plan::chunks_at_once, task_.chunks.end);
    if (cuts_.are_kept()) save_nothing(some);
    const layout::Range keys = plan::keys_of_chunks(some);
    if (blocks_.start(tiles_, keys, most)) {
      run_blocks(tiles_, false);
      continue;
    }
    for (ForwardTile<F>& tile : tiles_) {
      blocks_.start(tile.runs, keys);
      run_blocks({&tile, 1}, false);
    }
  }
}

// For the chunks of a cut task that a tile has no keys of.
template <class F>
void ForwardKeys<F>::save_nothing(layout::Range chunks) {
  for (ForwardTile<F>& tile : tiles_) {
    tile.part.clear(tile.width(), value_dim_);
    for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) end_chunk(tile, chunk);
  }
}

// What a cut task has of the chunk is saved, what others have joins the chunks before.
template <class F>
void ForwardKeys<F>::end_chunk(ForwardTile<F>& tile, std::int64_t chunk) {
  tile.chunk_begun = false;
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
  for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    blocks_.start(tile.runs, plan::keys_of_chunk(chunk));
    run_blocks({&tile, 1}, true);
  }
  if (!tile.started) tile.total.clear(tile.width(), value_dim_);
}

template class ForwardKeys<float>;
template class ForwardKeys<double>;

}  // namespace treadle::run
