// A task of a backward call.
//
//   for leaf of the queries:                           run/sum_tree.h: sums over queries end here
//     for group of its tiles that look at the task's keys:
//       load Q, dO, lse2 and delta of its tiles
//       for chunk of the task's:                       mostly one
//         for block of the chunk's keys:               run/backward_keys.h
//           for tile: for run of the block that it sees: a kernel: P, dS, its part of dQ
//           dV += P^T dO, dK += dS^T Q                 over all tiles of the group at once
//         deliver the tiles' dQ
//   join the leaves' dK and dV, scale and write them
//
// A task of a residue class mostly has all chunks: then its blocks have keys of several of them, and
// the dQ of its tiles is complete.
//
// Read BackwardWorker::run() first.
#include "run/backward_worker.h"

#include <algorithm>
#include <memory>

#include "plan/chunks.h"
#include "run/backward_keys.h"
#include "run/backward_room.h"
#include "run/backward_tile.h"
#include "run/nonfinite.h"
#include "run/task_gradients.h"

namespace treadle::run {
namespace {

// Of the queries of a key head.
template <class F>
std::int64_t leaves_of(const BackwardShared<F>& shared) {
  const BackwardProblem& problem = shared.problem;
  const plan::TilePlan& plan = shared.kernels.plan;
  const std::int64_t batches = problem.keys.batch() == 1 ? problem.q.size(0) : 1;
  if (problem.share != nullptr) return problem.share->all_leaves;
  const layout::Tiles& tiles = shared.pass.layout.tiles();
  const std::int64_t parts = (tiles.height() + plan.width() - 1) / plan.width();
  const std::int64_t leaf = plan::tiles_per_leaf(plan);
  return batches * ((tiles.count() * parts + leaf - 1) / leaf);
}

template <class F>
class BackwardWorker {
 public:
  BackwardWorker(BackwardShared<F>& shared, const plan::BackwardTask& task,
                 const plan::BackwardTask* next, Workspace& workspace);
  void run();

 private:
  const plan::TilePlan& plan() const { return shared_.kernels.plan; }
  std::int64_t width() const { return plan().width(); }
  BackwardTile<F> tile_of(std::int64_t entry) const;
  bool run_leaf(std::int64_t first, std::int64_t end);
  void close_leaf(std::int64_t number);
  void deliver_sums();
  void run_group(std::int64_t first, std::int64_t end, bool last_of_leaf);
  void run_chunk(std::int64_t chunk, bool last_of_leaf);
  void deliver_nothing(const BackwardTile<F>& tile);
  void deliver_dq(const BackwardTile<F>& tile, std::int64_t chunk, const F* part);
  void write_dq(const BackwardTile<F>& tile, const F* sum);
  void store(const CopyKernel& copy, const View& to, F* from, std::int64_t length, F scale);
  void watch(const F* values, std::int64_t count) {
    if (has_nan(values, count)) shared_.nan = true;
  }

  BackwardShared<F>& shared_;
  const BackwardProblem& problem_;
  const plan::BackwardTask& task_;
  std::int64_t batches_, heads_, parts_, per_batch_;
  std::int64_t dim_, value_dim_;  // padded
  TaskGradients<F> gradients_;
  BackwardRoom<F> room_;
  BackwardKeys<F> keys_;
  std::span<BackwardTile<F>> tiles_;  // of the current group
};

template <class F>
BackwardWorker<F>::BackwardWorker(BackwardShared<F>& shared, const plan::BackwardTask& task,
                                  const plan::BackwardTask* next, Workspace& workspace)
    : shared_(shared),
      problem_(shared.problem),
      task_(task),
      batches_(problem_.keys.batch() == 1 ? problem_.q.size(0) : 1),
      heads_(problem_.q.size(1) / problem_.keys.heads()),
      parts_((shared_.pass.layout.tiles().height() + width() - 1) / width()),
      per_batch_(heads_ * shared_.pass.layout.tiles().count() * parts_),
      dim_(padded(plan(), plan().dim)),
      value_dim_(padded(plan(), plan().value_dim)),
      gradients_(shared.kernels, problem_, shared.captured),
      keys_(shared, task, workspace.lists, gradients_) {
  Carver carver(workspace.memory());
  room_.carve(carver, plan(), shared.schedule.longest, leaves_of(shared), shared.kernels.mods);
  gradients_.carve(carver, leaves_of(shared));
  workspace.check(carver);
  // A task of chunks has more than the cache holds.
  room_.ahead.look_at(shared, shared.schedule.completes_dq ? next : nullptr);
  keys_.use(room_);
}

template <class F>
BackwardTile<F> BackwardWorker<F>::tile_of(std::int64_t entry) const {
  const layout::Layout& layout = shared_.pass.layout;
  BackwardTile<F> tile;
  tile.b = batches_ == 1 ? task_.key_batch : entry / per_batch_;
  tile.entry =
      plan::entry_of(layout, problem_.keys.heads(), width(), task_.key_head, entry % per_batch_);
  const std::int64_t number =
      (tile.b * problem_.q.size(1) + tile.entry.head) * layout.tiles().count() + tile.entry.tile;
  tile.place = number * parts_ + tile.entry.first_query / width();
  tile.runs = layout.runs(tile.b, tile.entry.head, tile.entry.tile);
  return tile;
}

// The chunk's part of a tile's dQ; the thread that completes the sum writes it.
template <class F>
void BackwardWorker<F>::deliver_dq(const BackwardTile<F>& tile, std::int64_t chunk, const F* part) {
  const F* sum = shared_.dq.deliver(tile.place, chunk, part);
  if (sum != nullptr) write_dq(tile, sum);
}

// Of a tile that looks at no key of the task's.
template <class F>
void BackwardWorker<F>::deliver_nothing(const BackwardTile<F>& tile) {
  if (shared_.schedule.completes_dq) {
    std::fill_n(room_.tiles[0].dq, width() * plan().dim, F{0});
    return write_dq(tile, room_.tiles[0].dq);
  }
  for (std::int64_t chunk = task_.chunks.begin; chunk < task_.chunks.end; ++chunk)
    deliver_dq(tile, chunk, nullptr);
}

template <class F>
void BackwardWorker<F>::write_dq(const BackwardTile<F>& tile, const F* sum) {
  if (tile.entry.queries == 0) return;
  if (shared_.adds && tile.runs.empty()) return;
  watch(sum, width() * plan().dim);
  room_.delivered.find(shared_.pass.layout, tile.entry.tile, tile.entry.first_query,
                       tile.entry.queries, width());
  const bool scales = problem_.share == nullptr || problem_.share->scales;
  std::fill_n(room_.factors, width(), scales ? static_cast<F>(problem_.scale) : F{1});
  shared_.kernels.dq_to_rows({.source = sum, .target = room_.dq_rows, .factors = room_.factors});
  const std::int32_t* rows = room_.delivered.rows;
  for (std::int64_t i = 0; shared_.adds && i < tile.entry.queries; ++i)
    add_before(rows_of(problem_.dq, tile.b, tile.entry.head) + rows[i] * row_bytes(problem_.dq),
               room_.dq_rows + i * plan().dim, plan().dim);
  store_rows(shared_.kernels.store_dq, room_.dq_rows, plan().dim, problem_.dq, tile.b,
             tile.entry.head, rows, tile.entry.queries);
}

template <class F>
void BackwardWorker<F>::run_group(std::int64_t first, std::int64_t end, bool last_of_leaf) {
  shared_.workers.check();
  tiles_ = {};
  for (std::int64_t e = first; e < end; ++e) {
    BackwardTile<F> tile = tile_of(e);
    if (!tile.looks_at(task_.keys)) {
      deliver_nothing(tile);
      continue;
    }
    tile.room = room_.tiles[tiles_.size()];
    tile.load(shared_, room_.factors);
    std::construct_at(room_.group + tiles_.size(), tile);
    tiles_ = {room_.group, tiles_.size() + 1};
  }
  if (tiles_.empty()) return;
  keys_.look_at(tiles_);
  if (shared_.schedule.completes_dq) {
    keys_.run_all(plan::chunks_of(task_.keys), last_of_leaf);
    for (const BackwardTile<F>& tile : tiles_) write_dq(tile, tile.room.dq_total);
    return;
  }
  for (std::int64_t chunk = task_.chunks.begin; chunk < task_.chunks.end; ++chunk)
    run_chunk(chunk, last_of_leaf);
}

// The group's tiles against one of the task's chunks.
template <class F>
void BackwardWorker<F>::run_chunk(std::int64_t chunk, bool last_of_leaf) {
  const layout::Range keys = task_.keys_of(chunk, problem_.keys.positions());
  gradients_.start_group();
  keys_.run(keys, last_of_leaf);
  if (!gradients_.add_group()) shared_.nan = true;
  for (const BackwardTile<F>& tile : tiles_) {
    const bool looked = tile.looks_at(keys);
    deliver_dq(tile, chunk, looked ? tile.room.dq : nullptr);
    if (looked && chunk + 1 < task_.chunks.end)
      std::fill_n(tile.room.dq, width() * plan().dim, F{0});
  }
}

// The task's rows, scaled and converted.
template <class F>
void BackwardWorker<F>::store(const CopyKernel& copy, const View& to, F* from, std::int64_t length,
                              F scale) {
  const layout::Run& own = task_.own;
  const std::int64_t keys = own.length();
  watch(from, keys * length);
  if (scale != F{1})
    for (std::int64_t i = 0; i < keys * length; ++i) from[i] *= scale;
  const std::int64_t first = own.begin() - problem_.keys.positions().begin;
  std::byte* rows = rows_of(to, task_.key_batch, task_.key_head) + first * row_bytes(to);
  // Neighbours, or those of a residue.
  const std::int64_t stride = row_bytes(to) * (own.count() > 1 ? own.step() : 1);
  for (std::int64_t i = 0; shared_.adds && i < keys; ++i)
    add_before(rows + i * stride, from + i * length, to.size(3));
  copy({.source = from,
        .source_stride = length * static_cast<std::int64_t>(sizeof(F)),
        .source_index = nullptr,
        .target = rows,
        .target_stride = stride,
        .target_index = nullptr,
        .count = keys});
}

// False if all will be computed again.
template <class F>
bool BackwardWorker<F>::run_leaf(std::int64_t first, std::int64_t end) {
  const std::int64_t group = plan::tiles_per_backward_group(plan());
  for (; first < end; first += group) {
    if (shared_.nan && !shared_.exact) return false;
    run_group(first, std::min(end, first + group), first + group >= end);
  }
  return true;
}

// Leaf `number` of those of all batches. Where only some leaves are here, nodes are handed over.
template <class F>
void BackwardWorker<F>::close_leaf(std::int64_t number) {
  if (problem_.share == nullptr) {
    room_.dk.close_leaf();
    room_.dv.close_leaf();
    return gradients_.close_leaf();
  }
  const BackwardShare& share = *problem_.share;
  const plan::LeafEnd& end = share.parts.ends[static_cast<std::size_t>(number)];
  const auto hand_over = [&](QuerySum<F>& sum, ShareSink::Sum which) {
    sum.close_leaf(end, [&](std::size_t piece, layout::Range keys, const F* rows) {
      watch(rows, keys.count() * sum.length());
      share.sink->put(which, task_, piece, keys, rows, sum.length());
    });
  };
  hand_over(room_.dk, ShareSink::Sum::dk);
  hand_over(room_.dv, ShareSink::Sum::dv);
  gradients_.close_leaf(end, task_.number, *share.sink);
}

template <class F>
void BackwardWorker<F>::deliver_sums() {
  if (problem_.share != nullptr) {
    if (!gradients_.hand_over(task_.number, *problem_.share->sink)) shared_.nan = true;
    return;
  }
  store(shared_.kernels.store_dk, problem_.dk, room_.dk.finish(), dim_,
        static_cast<F>(problem_.scale));
  store(shared_.kernels.store_dv, problem_.dv, room_.dv.finish(), value_dim_, F{1});
  if (!gradients_.deliver(task_.number)) shared_.nan = true;
}

template <class F>
void BackwardWorker<F>::run() {
  problem_.keys.await(task_.keys);
  const std::int64_t group = plan::tiles_per_backward_group(plan());
  room_.dk.clear(task_.own);
  room_.dv.clear(task_.own);
  // What pads a row is read and has to be a number.
  if (plan().dim < dim_) std::fill_n(room_.q_rows, group * width() * dim_, F{0});
  if (plan().value_dim < value_dim_)
    std::fill_n(room_.dout_rows, group * width() * value_dim_, F{0});
  gradients_.clear();
  const std::int64_t leaf = plan::tiles_per_leaf(plan()) * heads_;
  const std::int64_t leaves = (per_batch_ + leaf - 1) / leaf;
  const std::int64_t per_tile = parts_ * heads_;
  const layout::Range entries{task_.tiles.begin * per_tile, task_.tiles.end * per_tile};
  std::int64_t closed = 0;
  for (std::int64_t b = 0; b < batches_; ++b) {
    for (std::int64_t first = entries.begin; first < entries.end;) {
      const std::int64_t number = first / leaf;
      const std::int64_t end = std::min(entries.end, (number + 1) * leaf);
      const std::int64_t before = b * leaves + number;  // leaves
      room_.dk.skip(before - closed);
      room_.dv.skip(before - closed);
      closed = before + 1;
      if (!run_leaf(b * per_batch_ + first, b * per_batch_ + end)) return shared_.give_up();
      close_leaf(before);
      first = end;
    }
  }
  deliver_sums();
}

template <class F>
std::int64_t scratch_of(const plan::TilePlan& plan, std::int64_t keys, std::int64_t leaves,
                        std::int64_t contributions, const plan::ModScratch& mods) {
  return measured(
             [&](Carver& carver) { BackwardRoom<F>().carve(carver, plan, keys, leaves, mods); }) +
         TaskGradients<F>::bytes_of_block(plan, contributions);
}

}  // namespace

template <class F>
void run_task(BackwardShared<F>& shared, const plan::BackwardTask& task,
              const plan::BackwardTask* next, Workspace& workspace) {
  BackwardWorker<F>(shared, task, next, workspace).run();
}

std::int64_t backward_scratch(const plan::TilePlan& plan, std::int64_t keys, std::int64_t leaves,
                              std::int64_t contributions, const plan::ModScratch& mods) {
  return plan.compute == DType::f64 ? scratch_of<double>(plan, keys, leaves, contributions, mods)
                                    : scratch_of<float>(plan, keys, leaves, contributions, mods);
}

template <class F>
WorkspaceNeed workspace_need(const BackwardShared<F>& shared) {
  const plan::TilePlan& plan = shared.kernels.plan;
  const std::int64_t keys = shared.schedule.longest;
  const std::int64_t bytes = measured([&](Carver& carver) {
    BackwardRoom<F>().carve(carver, plan, keys, leaves_of(shared), shared.kernels.mods);
    TaskGradients<F>(shared.kernels, shared.problem, shared.captured)
        .carve(carver, leaves_of(shared));
  });
  // Every piece has a key; those of a tile do not overlap.
  const std::int64_t pieces = std::min(shared.pass.layout.most_pieces(), keys);
  return {.bytes = static_cast<std::size_t>(bytes),
          .wanted = static_cast<std::size_t>(plan::tiles_per_backward_group(plan) * pieces),
          .block = static_cast<std::size_t>(plan.key_block)};
}

template WorkspaceNeed workspace_need(const BackwardShared<float>&);
template WorkspaceNeed workspace_need(const BackwardShared<double>&);
template void run_task(BackwardShared<float>&, const plan::BackwardTask&, const plan::BackwardTask*,
                       Workspace&);
template void run_task(BackwardShared<double>&, const plan::BackwardTask&,
                       const plan::BackwardTask*, Workspace&);

}  // namespace treadle::run
