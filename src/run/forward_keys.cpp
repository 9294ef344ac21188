// Tiles against keys: chunk by chunk, block by block, run by run. Read run() first.
#include "run/forward_keys.h"

#include <algorithm>

#include "plan/chunks.h"

namespace treadle::run {

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
  tile.kernels->block(run.full,
                      exact)({.tile = {.keys = block.keys + run.begin * dim_,
                                       .values = block.values + run.begin * value_dim_,
                                       .key_positions = block.positions + run.begin,
                                       .count = run.end - run.begin,
                                       .queries = tile.lanes,
                                       .positions = tile.queries.positions,
                                       .active = tile.entry.queries,
                                       .b = term_->layout.extent().first_b + task_.b,
                                       .h = term_->layout.extent().first_h + tile.entry.head,
                                       .score_captures = problem_.score_captures.data(),
                                       .mask_captures = term_->mask_captures.data(),
                                       .staged = room_.staged,
                                       .frame = room_.frame,
                                       .dropout = &problem_.dropout,
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
    const std::span<const ChunkPlaces> parts = find_chunks(blocks_, chunks_);
    for (ForwardTile<F>& tile : tiles) run_block(tile, parts, exact);
  }
}

// A tile against the current block, chunk by chunk. Lists of keys may show what the mask does not, and
// then the mask is not asked about keys that are full.
template <class F>
void ForwardKeys<F>::run_block(ForwardTile<F>& tile, std::span<const ChunkPlaces> parts,
                               bool exact) {
  const ChunkRules rules{.at_once = tile.kernels->plan.sparse && !exact && !cuts_.are_kept(),
                         .may_ask = !term_->listed,
                         .ends = room_.chunk_ends};
  for_each_chunk(
      parts, blocks_.runs_of(tile.runs, tile.next_run), rules, tile.chunk_begun,
      [&](const BlockRun& places, std::int64_t chunks) { run_whole(tile, places, chunks); },
      [&](layout::Range places, std::span<const BlockRun> runs) {
        run_part(tile, places, runs, exact);
      },
      [&](std::int64_t chunk) { end_chunk(tile, chunk); });
}

// Chunks whose keys are all in the block, added to those before.
template <class F>
void ForwardKeys<F>::run_whole(ForwardTile<F>& tile, const BlockRun& places, std::int64_t chunks) {
  if (!tile.started) tile.total.clear(tile.width(), value_dim_);
  tile.started = true;
  run_places(tile, places, false, chunks);
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
