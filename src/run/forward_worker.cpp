// A task of a forward call.
//
//   load the queries of the task's tiles
//   for chunk of keys:                           plan/chunks.h: partial sums end here
//     for block of keys:                         shared by the tiles while it is in the cache
//       for tile:
//         for run of the block that it sees:     a kernel: m, l and O of the chunk go on
//     merge the chunk's m, l and O into the tile's
//   or, if they look at different keys, the same for one tile after the other
//   for tile: divide O by l, write rows, lse and max
//
// If the mask takes several passes, a tile's m, l and O go to run/row_states.h instead, and the next
// pass merges them with its own; the last one divides.
// A cut task saves its chunks' m, l and O instead; the last piece merges all of them in order.
// Read ForwardWorker::run() first.
#include "run/forward_worker.h"

#include <algorithm>
#include <memory>
#include <span>

#include "plan/chunks.h"
#include "run/forward_results.h"
#include "run/row_states.h"

namespace treadle::run {
namespace {

// The chunk that a tile is at.
struct OpenChunk {
  std::int64_t chunk = -1;
  bool begun = false;    // tile.part has sums of it
  std::int64_t end = 0;  // of its keys

  OpenChunk() = default;
  OpenChunk(std::int64_t number, bool has_sums)
      : chunk(number), begun(has_sums), end(plan::keys_of_chunk(number).end) {}
};

// Chunks whose keys are all in the current block, one after the other.
struct WholeChunks {
  BlockRun places;
  std::int64_t chunks = 0;
};

// Keys that all queries see and about which the mask is asked all the same, to save a call.
constexpr std::int64_t most_asked_in_vain = 48;

std::int64_t count_full(std::span<const BlockRun> runs, std::int64_t begin, std::int64_t end) {
  std::int64_t full = 0;
  for (const BlockRun& run : runs)
    if (run.full && run.begin < end && run.end > begin)
      full += std::min(run.end, end) - std::max(run.begin, begin);
  return full;
}

template <class F>
class ForwardWorker {
 public:
  ForwardWorker(ForwardShared& shared, const plan::Task& task, Workspace& workspace);

  void run();

 private:
  void load_queries(ForwardTile<F>& tile);
  void run_chunks();
  bool are_apart(layout::Range keys);
  void run_together(layout::Range chunks);
  void run_alone(ForwardTile<F>& tile, layout::Range chunks, bool exact);
  void run_whole(ForwardTile<F>& tile, WholeChunks& whole);
  void run_part(ForwardTile<F>& tile, layout::Range places, std::span<const BlockRun> runs,
                OpenChunk& open, bool exact);
  void run_places(ForwardTile<F>& tile, const BlockRun& run, bool exact, std::int64_t chunks = 0);
  void end_chunk(ForwardTile<F>& tile, std::int64_t chunk);
  void merge_chunk(ForwardTile<F>& tile);
  void save(const ForwardTile<F>& tile, std::int64_t chunk);
  void merge_pieces();
  void finish(ForwardTile<F>& tile);
  void run_exactly(ForwardTile<F>& tile);
  TileState<F> saved(std::int64_t chunk, std::size_t tile) const;

  ForwardShared& shared_;
  const ForwardProblem& problem_;
  const layout::Layout& layout_;
  const plan::Task& task_;
  std::int64_t dim_, value_dim_;
  std::span<ForwardTile<F>> tiles_;
  KeyBlocks<F> blocks_;
  ForwardRoom<F> room_;
  std::int64_t poisoned_ = 0;
  bool exactly_ = false;  // a tile that was complete is run again
};

template <class F>
ForwardWorker<F>::ForwardWorker(ForwardShared& shared, const plan::Task& task, Workspace& workspace)
    : shared_(shared),
      problem_(shared.problem),
      layout_(shared.pass.layout),
      task_(task),
      dim_(shared.pass.kernels.widest().plan.dim),
      value_dim_(shared.pass.kernels.widest().plan.value_dim),
      blocks_(problem_.keys, shared.pass.kernels.widest().plan, shared.pass.kernels.load_k,
              shared.pass.kernels.load_v, task.b, task.key_head, workspace.lists) {
  const plan::TilePlan& widest = shared.pass.kernels.widest().plan;
  const std::int64_t lanes = widest.target.lanes(widest.compute);
  Carver carver(workspace.memory());
  auto* tiles = carver.take<ForwardTile<F>>(task.count);
  std::size_t count = 0;
  for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
    ForwardTile<F> tile;
    tile.entry = plan::entry_of(layout_, problem_.keys.heads(), widest.width(), task.key_head, e);
    if (tile.entry.queries == 0) continue;
    if (!shared.order.works(shared.number, task.b, tile.entry.head)) continue;
    const auto whole = static_cast<std::size_t>((tile.entry.queries + lanes - 1) / lanes);
    tile.kernels = &shared.pass.kernels.tile(shared.vectors[whole - 1]);
    tile.runs = layout_.runs(task.b, tile.entry.head, tile.entry.tile);
    std::construct_at(tiles + count++, tile);
  }
  if (count == 0) return;
  tiles_ = {tiles, count};
  room_.carve(carver, tiles_, shared.pass.kernels.mods);
  workspace.check(carver);
  blocks_.use(room_.block);
}

// Rows by index, into the compute type, scaled and transposed. Lanes without a query repeat the
// last one.
template <class F>
void ForwardWorker<F>::load_queries(ForwardTile<F>& tile) {
  tile.queries.find(layout_, tile.entry.tile, tile.entry.first_query, tile.entry.queries,
                    tile.width());
  load_rows(shared_.pass.kernels.load_q, problem_.q, task_.b, tile.entry.head, tile.queries.rows,
            tile.width(), room_.rows, dim_);
  std::fill_n(room_.factors, tile.width(),
              static_cast<F>(problem_.scale * shared_.pass.kernels.query_factor));
  tile.kernels->queries_to_lanes(
      {.source = room_.rows, .target = tile.lanes, .factors = room_.factors});
}

// A tile against some places of the current block, all full or all partial, of one chunk, or of
// several whole ones.
template <class F>
void ForwardWorker<F>::run_places(ForwardTile<F>& tile, const BlockRun& run, bool exact,
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
                                                 .mask_captures = shared_.pass.mask_captures.data(),
                                                 .staged = room_.staged,
                                                 .frame = room_.frame,
                                                 .poisoned = &poisoned_},
                                        .scores = room_.scores,
                                        .sums = state.sums,
                                        .maximum = state.maximum,
                                        .weight = state.weight,
                                        .chunk_ends = room_.chunk_ends,
                                        .chunks = chunks});
  shared_.poisoned.note(poisoned_, {task_.b, tile.entry.head, tile.entry.tile});
}

// Whether the task's tiles look at different keys.
template <class F>
bool ForwardWorker<F>::are_apart(layout::Range keys) {
  if (tiles_.size() == 1) return true;
  // Different residue classes; looking at their keys would take longer than this.
  const layout::Order& order = layout_.tiles().order();
  const auto residue = [&](const ForwardTile<F>& tile) {
    return layout_.tiles().axis(tile.entry.tile).low % order.modulus;
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
void ForwardWorker<F>::run_together(layout::Range chunks) {
  for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    shared_.workers.check();
    blocks_.clear();
    for (ForwardTile<F>& tile : tiles_) {
      tile.part.clear(tile.width(), value_dim_);
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
void ForwardWorker<F>::run_alone(ForwardTile<F>& tile, layout::Range chunks, bool exact) {
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
      // A call for the whole chunk, unless the mask would be asked about too much.
      if (ends && !open.begun && !exact && task_.cut < 0 &&
          (is_full || full < most_asked_in_vain)) {
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
void ForwardWorker<F>::run_whole(ForwardTile<F>& tile, WholeChunks& whole) {
  if (whole.chunks == 0) return;
  if (!tile.started) tile.total.clear(tile.width(), value_dim_);
  tile.started = true;
  run_places(tile, whole.places, false, whole.chunks);
  whole.chunks = 0;
}

// Places of one chunk, which go on with its sums.
template <class F>
void ForwardWorker<F>::run_part(ForwardTile<F>& tile, layout::Range places,
                                std::span<const BlockRun> runs, OpenChunk& open, bool exact) {
  if (!open.begun) tile.part.clear(tile.width(), value_dim_);
  open.begun = true;
  for (const BlockRun& run : runs) {
    const BlockRun some{std::max(run.begin, places.begin), std::min(run.end, places.end), run.full};
    if (some.begin < some.end) run_places(tile, some, exact);
  }
}

// All of the task's chunks, some at a time, so that lists of keys stay short.
template <class F>
void ForwardWorker<F>::run_chunks() {
  for (layout::Range some = task_.chunks; some.begin < task_.chunks.end; some.begin = some.end) {
    some.end = std::min(some.begin + plan::chunks_at_once, task_.chunks.end);
    if (!are_apart(plan::keys_of_chunks(some))) {
      run_together(some);
      continue;
    }
    for (ForwardTile<F>& tile : tiles_) {
      if (task_.cut >= 0) {  // also those chunks that it has no keys of
        tile.part.clear(tile.width(), value_dim_);
        for (std::int64_t chunk = some.begin; chunk < some.end; ++chunk) end_chunk(tile, chunk);
      }
      run_alone(tile, some, false);
    }
  }
}

// What a cut task has of the chunk is saved, what others have joins the chunks before.
template <class F>
void ForwardWorker<F>::end_chunk(ForwardTile<F>& tile, std::int64_t chunk) {
  if (task_.cut >= 0 && !exactly_) {
    save(tile, chunk);
  } else {
    merge_chunk(tile);
  }
}

// The chunk's sums join those before them.
template <class F>
void ForwardWorker<F>::merge_chunk(ForwardTile<F>& tile) {
  if (!tile.started) {
    std::swap(tile.part, tile.total);
    tile.started = true;
  } else {
    tile.merge(tile.part);
  }
}

template <class F>
TileState<F> ForwardWorker<F>::saved(std::int64_t chunk, std::size_t tile) const {
  const auto number = static_cast<std::size_t>(task_.cut);
  const plan::Cut& cut = shared_.pass.schedule.cuts[number];
  const auto state = static_cast<std::size_t>((chunk - cut.chunks.begin) * cut.count) + tile;
  Carver carver(shared_.partial + shared_.partial_offsets[number] +
                state * state_bytes(shared_.pass.kernels.widest().plan));
  return TileState<F>::carve(carver, tiles_[tile].width(), value_dim_);
}

template <class F>
void ForwardWorker<F>::save(const ForwardTile<F>& tile, std::int64_t chunk) {
  const TileState<F> kept = saved(chunk, static_cast<std::size_t>(&tile - tiles_.data()));
  std::copy_n(tile.part.maximum, tile.width(), kept.maximum);
  std::copy_n(tile.part.weight, tile.width(), kept.weight);
  std::copy_n(tile.part.sums, tile.width() * value_dim_, kept.sums);
}

// All pieces of a cut task are there: puts them together in order.
template <class F>
void ForwardWorker<F>::merge_pieces() {
  const plan::Cut& cut = shared_.pass.schedule.cuts[static_cast<std::size_t>(task_.cut)];
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    ForwardTile<F>& tile = tiles_[i];
    tile.total.clear(tile.width(), value_dim_);
    tile.started = true;
    for (std::int64_t chunk = cut.chunks.begin; chunk < cut.chunks.end; ++chunk)
      tile.merge(saved(chunk, i));
  }
}

template <class F>
void ForwardWorker<F>::finish(ForwardTile<F>& tile) {
  const ForwardResults<F> results(shared_, task_.b, room_);
  if (results.deliver(tile, false)) return;
  run_exactly(tile);
  results.deliver(tile, true);
}

// Somewhere is an infinity or a NaN: again, keeping hidden keys apart from visible ones.
template <class F>
void ForwardWorker<F>::run_exactly(ForwardTile<F>& tile) {
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

template <class F>
void ForwardWorker<F>::run() {
  for (ForwardTile<F>& tile : tiles_) load_queries(tile);
  if (!tiles_.empty()) run_chunks();
  if (task_.cut >= 0) {
    // The last piece to end has the others' results before it.
    if (shared_.pieces_left[static_cast<std::size_t>(task_.cut)].fetch_sub(1) > 1) return;
    merge_pieces();
  }
  for (ForwardTile<F>& tile : tiles_) {
    if (!tile.started) tile.total.clear(tile.width(), value_dim_);
    finish(tile);
  }
}

// Of a task of so many tiles, none of which is wider.
template <class F>
std::int64_t scratch_of(const ForwardKernels::OfTile& widest, std::int64_t tiles,
                        const plan::ModScratch& mods) {
  std::vector<ForwardTile<F>> group(static_cast<std::size_t>(tiles));
  for (ForwardTile<F>& tile : group) tile.kernels = &widest;
  return measured([&](Carver& carver) {
    carver.take<ForwardTile<F>>(tiles);
    ForwardRoom<F>().carve(carver, group, mods);
  });
}

std::int64_t scratch_of(DType compute, const ForwardKernels::OfTile& widest, std::int64_t tiles,
                        const plan::ModScratch& mods) {
  return compute == DType::f64 ? scratch_of<double>(widest, tiles, mods)
                               : scratch_of<float>(widest, tiles, mods);
}

}  // namespace

std::size_t state_bytes(const plan::TilePlan& plan) {
  return static_cast<std::size_t>(measured([&](Carver& carver) {
    if (plan.compute == DType::f64) {
      TileState<double>::carve(carver, plan.width(), plan.value_dim);
    } else {
      TileState<float>::carve(carver, plan.width(), plan.value_dim);
    }
  }));
}

std::size_t row_state_bytes(const ForwardShared& shared) {
  const layout::Extent& extent = shared.pass.layout.extent();
  const std::int64_t rows = extent.batch * extent.heads * extent.queries.count();
  const plan::TilePlan& plan = shared.pass.kernels.widest().plan;
  return static_cast<std::size_t>(measured([&](Carver& carver) {
    if (plan.compute == DType::f64) {
      RowStates<double>::carve(carver, rows, plan.value_dim);
    } else {
      RowStates<float>::carve(carver, rows, plan.value_dim);
    }
  }));
}

std::int64_t forward_scratch(const plan::TilePlan& widest, int tiles_per_group,
                             const plan::ModScratch& mods) {
  ForwardKernels::OfTile tile;
  tile.plan = widest;
  return scratch_of(widest.compute, tile, tiles_per_group, mods);
}

WorkspaceNeed workspace_need(const ForwardShared& shared) {
  const plan::Schedule& schedule = shared.pass.schedule;
  const auto most = std::ranges::max_element(schedule.tasks, {}, &plan::Task::count);
  if (most == schedule.tasks.end()) return {};
  const plan::TilePlan& plan = shared.pass.kernels.widest().plan;
  const int vectors =
      plan::vectors_for(plan.target, plan.compute, shared.pass.layout.tiles().height());
  const ForwardKernels::OfTile& widest = shared.pass.kernels.tile(
      std::ranges::max(std::span(shared.vectors).first(static_cast<std::size_t>(vectors))));
  // Every piece has a key; those of a tile do not overlap.
  const std::int64_t pieces =
      std::min(shared.pass.layout.most_pieces(),
               plan::chunks_at_once * plan::longest_chunk(shared.pass.layout.extent().keys));
  return {.bytes = static_cast<std::size_t>(scratch_of(shared.pass.kernels.compute, widest,
                                                       most->count, shared.pass.kernels.mods)),
          .wanted = static_cast<std::size_t>(most->count * pieces),
          .block = static_cast<std::size_t>(widest.plan.key_block)};
}

void run_task(ForwardShared& shared, const plan::Task& task, Workspace& workspace) {
  if (shared.pass.kernels.compute == DType::f64) {
    ForwardWorker<double>(shared, task, workspace).run();
  } else {
    ForwardWorker<float>(shared, task, workspace).run();
  }
}

}  // namespace treadle::run
