// A task of a forward call.
//
//   load the queries of the task's tiles
//   for term of the mask:                          most masks have one, and most passes
//     for chunk of keys:                           plan/chunks.h: partial sums end here
//       for block of keys:                         shared by the tiles while it is in the cache
//         for tile:
//           for run of the block that it sees:     a kernel: m, l and O of the chunk go on
//       merge the chunk's m, l and O into the tile's
//     or, if they look at different keys, the same for one tile after the other
//     merge the term's m, l and O into the tile's
//   for tile: divide O by l, write rows, lse and max
//
// If the mask takes several passes, a tile's m, l and O go to run/row_states.h instead, and the next
// pass merges them with its own; the last one divides.
// A cut task saves its chunks' m, l and O instead; the last piece merges all of them in order.
// Read ForwardWorker::run() first.
#include "run/forward_worker.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>

#include "plan/chunks.h"
#include "run/forward_keys.h"
#include "run/forward_results.h"

namespace treadle::run {
namespace {

template <class F>
class ForwardWorker {
 public:
  ForwardWorker(ForwardShared& shared, const plan::Task& task, const plan::Task* next,
                Workspace& workspace);

  void run();

 private:
  void load_queries(ForwardTile<F>& tile);
  void run_several();
  void finish(ForwardTile<F>& tile);

  ForwardShared& shared_;
  const ForwardProblem& problem_;
  const plan::Task& task_;
  std::span<ForwardTile<F>> tiles_;
  ForwardRoom<F> room_;
  ForwardKeys<F> keys_;
  CutSums<F> cuts_;
};

template <class F>
ForwardWorker<F>::ForwardWorker(ForwardShared& shared, const plan::Task& task,
                                const plan::Task* next, Workspace& workspace)
    : shared_(shared),
      problem_(shared.problem),
      task_(task),
      keys_(shared, task, workspace.lists),
      cuts_(shared, task) {
  const plan::TilePlan& widest = shared.pass.widest().plan;
  const std::int64_t lanes = widest.target.lanes(widest.compute);
  Carver carver(workspace.memory());
  auto* tiles = carver.take<ForwardTile<F>>(task.count);
  std::size_t count = 0;
  for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
    ForwardTile<F> tile;
    tile.entry = plan::entry_of(shared.pass.layout(), problem_.keys.heads(), widest.width(),
                                task.key_head, e);
    if (tile.entry.queries == 0) continue;
    if (!shared.order.works(shared.number, task.b, tile.entry.head)) continue;
    const auto whole = static_cast<std::size_t>((tile.entry.queries + lanes - 1) / lanes);
    tile.kernels = &shared.pass.kernels().tile(shared.vectors[whole - 1]);
    std::construct_at(tiles + count++, tile);
  }
  if (count == 0) return;
  tiles_ = {tiles, count};
  room_.carve(carver, tiles_, shared.mods, shared.joins());
  workspace.check(carver);
  if (shared.pass.is_sparse()) room_.ahead.look_at(shared, next);
  keys_.use(room_, tiles_);
}

// Rows by index, into the compute type, scaled and transposed. Lanes without a query repeat the
// last one.
template <class F>
void ForwardWorker<F>::load_queries(ForwardTile<F>& tile) {
  const ForwardKernels& kernels = shared_.pass.kernels();
  tile.queries.find(shared_.pass.layout(), tile.entry.tile, tile.entry.first_query,
                    tile.entry.queries, tile.width());
  load_rows(kernels.load_q, problem_.q, task_.b, tile.entry.head, tile.queries.rows, tile.width(),
            room_.rows, kernels.widest().plan.dim);
  std::fill_n(room_.factors, tile.width(), static_cast<F>(problem_.scale * kernels.query_factor));
  tile.kernels->queries_to_lanes(
      {.source = room_.rows, .target = tile.lanes, .factors = room_.factors});
}

template <class F>
void ForwardWorker<F>::finish(ForwardTile<F>& tile) {
  const ForwardResults<F> results(shared_, task_.b, room_);
  if (results.write(tile, false)) return;
  keys_.run_exactly(tile);
  results.write(tile, true);
}

// Terms, and passes before, whose states are joined in their order.
template <class F>
void ForwardWorker<F>::run_several() {
  const ForwardResults<F> results(shared_, task_.b, room_);
  for (ForwardTile<F>& tile : tiles_) results.begin(tile);
  for (std::size_t term = 0; term < shared_.pass.terms.size(); ++term) {
    keys_.look_at(term);
    keys_.run();
    for (ForwardTile<F>& tile : tiles_) {
      if (!tile.started) continue;
      if (!results.is_clean(tile)) keys_.run_exactly(tile);
      tile.join();
    }
  }
  for (ForwardTile<F>& tile : tiles_) results.end(tile);
}

template <class F>
void ForwardWorker<F>::run() {
  if (!tiles_.empty() && !task_.chunks.empty())
    problem_.keys.await(plan::keys_of_chunks(task_.chunks));
  for (ForwardTile<F>& tile : tiles_) load_queries(tile);
  if (shared_.joins()) return run_several();
  if (!tiles_.empty()) {
    keys_.look_at(0);
    keys_.run();
  }
  if (cuts_.are_kept()) {
    // The last piece to end has the others' results before it.
    if (shared_.pieces_left[static_cast<std::size_t>(task_.cut)].fetch_sub(1) > 1) return;
    for (std::size_t i = 0; i < tiles_.size(); ++i) cuts_.merge(tiles_[i], i);
  }
  for (ForwardTile<F>& tile : tiles_) {
    if (!tile.started) tile.total.clear(tile.width(), shared_.pass.widest().plan.value_dim);
    finish(tile);
  }
}

// Of a task of so many tiles, none of which is wider.
template <class F>
std::int64_t scratch_of(const ForwardKernels::OfTile& widest, std::int64_t tiles,
                        const plan::ModScratch& mods, bool joins) {
  std::vector<ForwardTile<F>> group(static_cast<std::size_t>(tiles));
  for (ForwardTile<F>& tile : group) tile.kernels = &widest;
  return measured([&](Carver& carver) {
    carver.take<ForwardTile<F>>(tiles);
    ForwardRoom<F>().carve(carver, group, mods, joins);
  });
}

std::int64_t scratch_of(DType compute, const ForwardKernels::OfTile& widest, std::int64_t tiles,
                        const plan::ModScratch& mods, bool joins) {
  return compute == DType::f64 ? scratch_of<double>(widest, tiles, mods, joins)
                               : scratch_of<float>(widest, tiles, mods, joins);
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

std::int64_t forward_row_bytes(DType compute, std::int64_t rows, std::int64_t value_dim) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const auto size = static_cast<std::int64_t>(size_of(compute));
  if (rows > most / 2 / size / (value_dim + 64)) return most;
  return measured([&](Carver& carver) {
    if (compute == DType::f64) {
      RowStates<double>::carve(carver, rows, value_dim);
    } else {
      RowStates<float>::carve(carver, rows, value_dim);
    }
  });
}

std::size_t row_state_bytes(const ForwardShared& shared) {
  const layout::Extent& extent = shared.pass.layout().extent();
  const std::int64_t rows = extent.batch * extent.heads * extent.queries.count();
  const plan::TilePlan& plan = shared.pass.widest().plan;
  return static_cast<std::size_t>(forward_row_bytes(plan.compute, rows, plan.value_dim));
}

std::int64_t forward_scratch(const plan::TilePlan& widest, int tiles_per_group,
                             const plan::ModScratch& mods, bool joins) {
  ForwardKernels::OfTile tile;
  tile.plan = widest;
  return scratch_of(widest.compute, tile, tiles_per_group, mods, joins);
}

std::int64_t forward_cut_bytes(const plan::TilePlan& widest, std::int64_t tiles,
                               std::int64_t chunks) {
  return chunks > 1 ? tiles * chunks * static_cast<std::int64_t>(state_bytes(widest)) : 0;
}

WorkspaceNeed workspace_need(const ForwardShared& shared) {
  const plan::Schedule& schedule = shared.pass.schedule;
  const auto most = std::ranges::max_element(schedule.tasks, {}, &plan::Task::count);
  if (most == schedule.tasks.end()) return {};
  const plan::TilePlan& plan = shared.pass.widest().plan;
  const int vectors =
      plan::vectors_for(plan.target, plan.compute, shared.pass.layout().tiles().height());
  const ForwardKernels::OfTile& widest = shared.pass.kernels().tile(
      std::ranges::max(std::span(shared.vectors).first(static_cast<std::size_t>(vectors))));
  // Every piece has a key; those of a tile do not overlap.
  std::int64_t pieces = 0;
  for (const ForwardPass::Term& term : shared.pass.terms)
    pieces = std::max(pieces, term.layout.most_pieces());
  pieces = std::min(pieces,
                    plan::chunks_at_once * plan::longest_chunk(shared.pass.layout().extent().keys));
  return {.bytes = static_cast<std::size_t>(scratch_of(shared.pass.kernels().compute, widest,
                                                       most->count, shared.mods, shared.joins())),
          .wanted = static_cast<std::size_t>(most->count * pieces),
          .block = static_cast<std::size_t>(widest.plan.key_block)};
}

void run_task(ForwardShared& shared, const plan::Task& task, const plan::Task* next,
              Workspace& workspace) {
  if (shared.pass.kernels().compute == DType::f64) {
    ForwardWorker<double>(shared, task, next, workspace).run();
  } else {
    ForwardWorker<float>(shared, task, next, workspace).run();
  }
}

}  // namespace treadle::run
