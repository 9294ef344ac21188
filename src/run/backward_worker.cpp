// A task of a backward call.
//
//   for leaf of the queries:                           run/sum_tree.h: sums over queries end here
//     for group of its tiles that look at the task's keys:
//       load Q, dO, lse2 and delta of its tiles
//       for chunk of the task's:                       mostly one
//         for block of the chunk's keys:
//           for tile: for run of the block that it sees: a kernel: P, dS, its part of dQ
//           dV += P^T dO, dK += dS^T Q                 over all tiles of the group at once
//         deliver the tiles' dQ
//   join the leaves' dK and dV, scale and write them
//
// Read BackwardWorker::run() first.
#include "run/backward_worker.h"

#include <algorithm>
#include <memory>

#include "run/backward_room.h"
#include "run/backward_tile.h"
#include "run/key_blocks.h"
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
  const layout::Tiles& tiles = shared.pass.layout.tiles();
  const std::int64_t parts = (tiles.height() + plan.width() - 1) / plan.width();
  const std::int64_t leaf = plan::tiles_per_leaf(plan);
  return batches * ((tiles.count() * parts + leaf - 1) / leaf);
}

// Tiles whose keys, taken together, are so many times those of one of them have nothing in common
// that is worth a block of its own.
constexpr double apart = 3;

template <class F>
class BackwardWorker {
 public:
  BackwardWorker(BackwardShared<F>& shared, const plan::BackwardTask& task, Workspace& workspace);
  void run();

 private:
  const plan::TilePlan& plan() const { return shared_.kernels.plan; }
  std::int64_t width() const { return plan().width(); }
  BackwardTile<F> tile_of(std::int64_t entry) const;
  bool run_leaf(std::int64_t first, std::int64_t end);
  void run_group(std::int64_t first, std::int64_t end, bool last_of_leaf);
  void run_chunk(std::int64_t chunk, bool last_of_leaf);
  void run_blocks(layout::Range keys, bool last_of_leaf);
  void run_block(layout::Range tiles, bool last_of_leaf);
  layout::Range run_tile(std::size_t number, std::int64_t rows);
  void deliver_dq(const BackwardTile<F>& tile, std::int64_t chunk, const F* part);
  void store(const CopyKernel& copy, const View& to, F* from, std::int64_t length, F scale);
  void watch(const F* values, std::int64_t count) {
    if (has_nan(values, count)) shared_.nan = true;
  }

  BackwardShared<F>& shared_;
  const BackwardProblem& problem_;
  const plan::BackwardTask& task_;
  std::int64_t batches_, heads_, parts_, per_batch_;
  std::int64_t dim_, value_dim_;  // padded
  KeyBlocks<F> blocks_;
  TaskGradients<F> gradients_;
  BackwardRoom<F> room_;
  std::span<BackwardTile<F>> tiles_;  // of the current group
  // Whether its Q and dO hold infinities or NaN that have to be kept from hidden pairs.
  bool exact_queries_ = false, exact_dout_ = false;
  std::int64_t poisoned_ = 0;
};

template <class F>
BackwardWorker<F>::BackwardWorker(BackwardShared<F>& shared, const plan::BackwardTask& task,
                                  Workspace& workspace)
    : shared_(shared),
      problem_(shared.problem),
      task_(task),
      batches_(problem_.keys.batch() == 1 ? problem_.q.size(0) : 1),
      heads_(problem_.q.size(1) / problem_.keys.heads()),
      parts_((shared_.pass.layout.tiles().height() + width() - 1) / width()),
      per_batch_(heads_ * shared_.pass.layout.tiles().count() * parts_),
      dim_(padded(plan(), plan().dim)),
      value_dim_(padded(plan(), plan().value_dim)),
      blocks_(problem_.keys, plan(), shared.kernels.load_k, shared.kernels.load_v, task.key_batch,
              task.key_head, workspace.lists),
      gradients_(shared.kernels, problem_, shared.captured) {
  Carver carver(workspace.memory());
  room_.carve(carver, plan(), shared.schedule.longest, leaves_of(shared), shared.kernels.mods);
  gradients_.carve(carver, leaves_of(shared));
  workspace.check(carver);
  blocks_.use(room_.block);
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

// A tile's P and dS for the current block; places it does not look at are zero. Returns a range
// around those that it does look at.
template <class F>
layout::Range BackwardWorker<F>::run_tile(std::size_t number, std::int64_t rows) {
  BackwardTile<F>& tile = tiles_[number];
  layout::Range looked_at;
  const std::int64_t first = static_cast<std::int64_t>(number) * block_rows(plan()) * width();
  F* probabilities = room_.probabilities + first;
  F* dscores = room_.dscores + first;
  std::int64_t done = 0;
  const F hidden = shared_.exact ? -F{0} : F{0};  // exact products skip -0
  const auto clear_until = [&](std::int64_t end) {
    std::fill(probabilities + done * width(), probabilities + end * width(), hidden);
    std::fill(dscores + done * width(), dscores + end * width(), hidden);
  };
  const KeyBlock<F>& block = blocks_.now();
  for (const BlockRun& run : blocks_.runs_of(tile.runs, tile.next_run)) {
    clear_until(run.begin);
    done = run.end;
    looked_at = {looked_at.empty() ? run.begin : looked_at.begin, run.end};
    plan::BackwardKernelArgs args{.tile = {.keys = block.keys + run.begin * plan().dim,
                                           .values = block.values + run.begin * plan().value_dim,
                                           .key_positions = block.positions + run.begin,
                                           .count = run.end - run.begin,
                                           .queries = tile.room.q_lanes,
                                           .positions = tile.room.queries.positions,
                                           .active = tile.entry.queries,
                                           .b = shared_.pass.layout.extent().first_b + tile.b,
                                           .h = tile.entry.head,
                                           .score_captures = problem_.score_captures.data(),
                                           .mask_captures = shared_.pass.mask_captures.data(),
                                           .staged = room_.staged,
                                           .frame = room_.frame,
                                           .poisoned = &poisoned_},
                                  .dout = tile.room.dout_lanes,
                                  .lse2 = tile.room.lse2,
                                  .delta = tile.room.delta,
                                  .takes_part = tile.room.takes_part,
                                  .probabilities = probabilities + run.begin * width(),
                                  .dscores = dscores + run.begin * width(),
                                  .dq = tile.room.dq,
                                  .derivative_captures = problem_.derivative_captures.data(),
                                  .gradient_strides = problem_.gradient_strides.data()};
    gradients_.set(args, number, run);
    shared_.kernels.block(run.full, shared_.exact)(args);
    if (!gradients_.take(number, run, tile.entry.queries)) shared_.nan = true;
    shared_.poisoned.note(poisoned_, {tile.b, tile.entry.head, tile.entry.tile});
  }
  clear_until(rows);
  return looked_at;
}

// Some tiles of the group against the current block, and what that adds to dK and dV.
template <class F>
void BackwardWorker<F>::run_block(layout::Range tiles, bool last_of_leaf) {
  const BackwardKernels& kernels = shared_.kernels;
  const auto whole = [&](const plan::ReduceSpec& spec) {
    const std::int64_t step = spec.rows_at_once();
    return (blocks_.now().count + step - 1) / step * step;
  };
  const std::int64_t rows = std::max(whole(kernels.dk_spec), whole(kernels.dv_spec));
  gradients_.start_block();
  layout::Range all;
  std::int64_t sum_of_places = 0;
  for (std::int64_t i = tiles.begin; i < tiles.end; ++i) {
    const layout::Range places = run_tile(static_cast<std::size_t>(i), rows);
    room_.places[i] = places;
    if (places.empty()) continue;
    sum_of_places += places.count();
    all = all.empty()
              ? places
              : layout::Range(std::min(all.begin, places.begin), std::max(all.end, places.end));
  }
  // Tile by tile if together most of what is added would be zeros. An element's chain of additions
  // is the same.
  const bool together = static_cast<double>(tiles.count() * all.count()) <
                        plan::most_shared * static_cast<double>(sum_of_places);
  const auto add = [&](QuerySum<F>& sum, const LazyKernel<plan::ReduceArgs>& kernel,
                       const plan::ReduceSpec& spec, const F* a, const F* b) {
    const std::int64_t a_tile = block_rows(plan()) * width(), b_tile = width() * spec.length;
    const auto add_tiles = [&](std::int64_t first, std::int64_t count, layout::Range places) {
      sum.add(kernel, spec,
              {a + first * a_tile, b + first * b_tile, count, places.begin, places.end});
    };
    sum.start_block(blocks_.now().segments);
    if (together) {
      add_tiles(tiles.begin, tiles.count(), all);
    } else {
      for (std::int64_t i = tiles.begin; i < tiles.end; ++i) add_tiles(i, 1, room_.places[i]);
    }
    sum.end_block(last_of_leaf);
  };
  add(room_.dv, exact_dout_ ? kernels.exact_sum_dv : kernels.sum_dv, kernels.dv_spec,
      room_.probabilities, room_.dout_rows);
  add(room_.dk, exact_queries_ ? kernels.exact_sum_dk : kernels.sum_dk, kernels.dk_spec,
      room_.dscores, room_.q_rows);
  gradients_.add_block(blocks_.now().count);
}

// Blocks of keys that all of the group's tiles look at, or, where these look at different ones, a
// tile's own.
template <class F>
void BackwardWorker<F>::run_blocks(layout::Range keys, bool last_of_leaf) {
  const auto count = static_cast<std::int64_t>(tiles_.size());
  if (blocks_.start(std::span(tiles_), keys, apart)) {
    while (blocks_.next()) run_block({0, count}, last_of_leaf);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    blocks_.start(tiles_[static_cast<std::size_t>(i)].runs, keys);
    while (blocks_.next()) run_block({i, i + 1}, last_of_leaf && i + 1 == count);
  }
}

// The chunk's part of a tile's dQ; the thread that completes the sum writes it.
template <class F>
void BackwardWorker<F>::deliver_dq(const BackwardTile<F>& tile, std::int64_t chunk, const F* part) {
  const F* sum = shared_.dq.deliver(tile.place, chunk, part);
  if (sum == nullptr || tile.entry.queries == 0) return;
  if (shared_.adds && tile.runs.empty()) return;
  watch(sum, width() * plan().dim);
  room_.delivered.find(shared_.pass.layout, tile.entry.tile, tile.entry.first_query,
                       tile.entry.queries, width());
  std::fill_n(room_.factors, width(), static_cast<F>(problem_.scale));
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
      for (std::int64_t chunk = task_.chunks.begin; chunk < task_.chunks.end; ++chunk)
        deliver_dq(tile, chunk, nullptr);
      continue;
    }
    tile.room = room_.tiles[tiles_.size()];
    tile.load(shared_.pass, problem_, shared_.terms, room_.factors);
    std::construct_at(room_.group + tiles_.size(), tile);
    tiles_ = {room_.group, tiles_.size() + 1};
  }
  if (tiles_.empty()) return;
  if (shared_.exact) {
    const auto rows = static_cast<std::int64_t>(tiles_.size()) * width();
    exact_queries_ = has_nonfinite(room_.q_rows, rows * dim_);
    exact_dout_ = has_nonfinite(room_.dout_rows, rows * value_dim_);
  }
  for (std::int64_t chunk = task_.chunks.begin; chunk < task_.chunks.end; ++chunk)
    run_chunk(chunk, last_of_leaf);
}

// The group's tiles against one of the task's chunks.
template <class F>
void BackwardWorker<F>::run_chunk(std::int64_t chunk, bool last_of_leaf) {
  const layout::Range keys = task_.keys_of(chunk, problem_.keys.positions());
  gradients_.start_group();
  run_blocks(keys, last_of_leaf);
  if (!gradients_.add_group()) shared_.nan = true;
  for (const BackwardTile<F>& tile : tiles_) {
    const bool looked = tile.looks_at(keys);
    deliver_dq(tile, chunk, looked ? tile.room.dq : nullptr);
    if (looked && chunk + 1 < task_.chunks.end)
      std::fill_n(tile.room.dq, width() * plan().dim, F{0});
  }
}

// The chunk's rows, scaled and converted.
template <class F>
void BackwardWorker<F>::store(const CopyKernel& copy, const View& to, F* from, std::int64_t length,
                              F scale) {
  const std::int64_t keys = task_.keys.count();
  watch(from, keys * length);
  for (std::int64_t i = 0; i < keys * length; ++i) from[i] *= scale;
  const std::int64_t first = task_.keys.begin - problem_.keys.positions().begin;
  std::byte* rows = rows_of(to, task_.key_batch, task_.key_head) + first * row_bytes(to);
  for (std::int64_t i = 0; shared_.adds && i < keys; ++i)
    add_before(rows + i * row_bytes(to), from + i * length, to.size(3));
  copy({.source = from,
        .source_stride = length * static_cast<std::int64_t>(sizeof(F)),
        .source_index = nullptr,
        .target = rows,
        .target_stride = row_bytes(to),
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
  room_.dk.close_leaf();
  room_.dv.close_leaf();
  gradients_.close_leaf();
  return true;
}

template <class F>
void BackwardWorker<F>::run() {
  const std::int64_t group = plan::tiles_per_backward_group(plan());
  room_.dk.clear(task_.keys.begin);
  room_.dv.clear(task_.keys.begin);
  // What pads a row is read and has to be a number.
  std::fill_n(room_.q_rows, group * width() * dim_, F{0});
  std::fill_n(room_.dout_rows, group * width() * value_dim_, F{0});
  gradients_.clear();
  const std::int64_t leaf = plan::tiles_per_leaf(plan()) * heads_;
  for (std::int64_t b = 0; b < batches_; ++b) {
    for (std::int64_t first = 0; first < per_batch_; first += leaf) {
      const std::int64_t end = std::min(per_batch_, first + leaf);
      if (!run_leaf(b * per_batch_ + first, b * per_batch_ + end)) return shared_.give_up();
    }
  }
  store(shared_.kernels.store_dk, problem_.dk, room_.dk.finish(), dim_,
        static_cast<F>(problem_.scale));
  store(shared_.kernels.store_dv, problem_.dv, room_.dv.finish(), value_dim_, F{1});
  if (!gradients_.deliver(task_.number)) shared_.nan = true;
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
void run_task(BackwardShared<F>& shared, const plan::BackwardTask& task, Workspace& workspace) {
  BackwardWorker<F>(shared, task, workspace).run();
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
template void run_task(BackwardShared<float>&, const plan::BackwardTask&, Workspace&);
template void run_task(BackwardShared<double>&, const plan::BackwardTask&, Workspace&);

}  // namespace treadle::run
