// A task of a backward call.
//
//   for group of tiles that look at the chunk:
//     load Q, dO, lse2 and delta of its tiles
//     for block of the chunk's keys:
//       for tile: for run of the block that it sees:   a kernel: P, dS, its part of dQ
//       dV += P^T dO, dK += dS^T Q                     over all tiles of the group at once
//     deliver the tiles' dQ
//   scale and write dK and dV of the chunk
//
// Read BackwardWorker::run() first.
#include "run/backward_worker.h"

#include <algorithm>
#include <memory>

#include "run/backward_tile.h"
#include "run/key_blocks.h"
#include "run/nonfinite.h"
#include "run/task_gradients.h"

namespace treadle::run {
namespace {

// The memory of a task but for contributions to captures.
template <class F>
struct BackwardRoom {
  std::span<typename BackwardTile<F>::Room> tiles;
  BackwardTile<F>* group = nullptr;                // [tiles]
  F *probabilities = nullptr, *dscores = nullptr;  // [tiles][block_rows][width]: P, dS
  F *q_rows = nullptr, *dout_rows = nullptr;       // [tiles][width][dim], padded
  F *dk = nullptr, *dv = nullptr;                  // [keys + spare][dim], padded
  F *block_dk = nullptr, *block_dv = nullptr;      // of a block whose keys are not contiguous
  Queries delivered;                               // of a tile whose dQ is complete
  F* dq_rows = nullptr;                            // [width][dim], its rows
  F* factors = nullptr;                            // [width]
  std::byte *staged = nullptr, *frame = nullptr;
  typename KeyBlocks<F>::Room block;

  // For tasks of at most so many keys.
  void carve(Carver& carver, const plan::TilePlan& plan, std::int64_t keys,
             const plan::ModScratch& mods) {
    const std::int64_t count = plan::tiles_per_backward_group(plan);
    const std::int64_t width = plan.width();
    const std::int64_t dim = padded(plan, plan.dim), value_dim = padded(plan, plan.value_dim);
    const std::int64_t rows = block_rows(plan), spare = rows - plan.key_block;
    auto* rooms = carver.take<typename BackwardTile<F>::Room>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto room = BackwardTile<F>::Room::carve(carver, plan);
      if (rooms != nullptr) std::construct_at(rooms + i, room);  // not while measuring
    }
    if (rooms != nullptr) tiles = {rooms, static_cast<std::size_t>(count)};
    group = carver.take<BackwardTile<F>>(count);
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
    dk = carver.take<F>((keys + spare) * dim);
    dv = carver.take<F>((keys + spare) * value_dim);
    block_dk = carver.take<F>(rows * dim);
    block_dv = carver.take<F>(rows * value_dim);
    block = KeyBlocks<F>::Room::carve(carver, plan);
  }
};

template <class F>
class BackwardWorker {
 public:
  BackwardWorker(BackwardShared<F>& shared, const plan::BackwardTask& task, Workspace& workspace);
  void run();

 private:
  const plan::TilePlan& plan() const { return shared_.kernels.plan; }
  std::int64_t width() const { return plan().width(); }
  BackwardTile<F> tile_of(std::int64_t entry) const;
  bool looks_at_chunk(const BackwardTile<F>& tile) const;
  void run_group(std::int64_t first, std::int64_t end);
  void run_block();
  void run_tile(BackwardTile<F>& tile, std::size_t number, std::int64_t rows);
  void sum_over_queries(const LazyKernel<plan::ReduceArgs>& kernel, const F* a, const F* b, F* all,
                        F* own, std::int64_t rows, std::int64_t length);
  void deliver_dq(const BackwardTile<F>& tile, const F* part);
  void store(const CopyKernel& copy, const View& to, F* from, std::int64_t length, F scale);
  void watch(const F* values, std::int64_t count) {
    if (has_nan(values, count)) shared_.nan = true;
  }

  BackwardShared<F>& shared_;
  const BackwardProblem& problem_;
  const plan::BackwardTask& task_;
  std::int64_t batches_, per_batch_ = 0, parts_;
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
      parts_((problem_.layout.tiles().height() + width() - 1) / width()),
      dim_(padded(plan(), plan().dim)),
      value_dim_(padded(plan(), plan().value_dim)),
      blocks_(problem_.keys, plan(), shared.kernels.load_k, shared.kernels.load_v, task.key_batch,
              task.key_head, workspace.lists),
      gradients_(shared.kernels, problem_.captured, shared.captured) {
  per_batch_ =
      problem_.q.size(1) / problem_.keys.heads() * problem_.layout.tiles().count() * parts_;
  Carver carver(workspace.memory());
  room_.carve(carver, plan(), shared.schedule.longest, shared.kernels.mods);
  gradients_.carve(carver);
  workspace.check(carver);
  blocks_.use(room_.block);
}

template <class F>
BackwardTile<F> BackwardWorker<F>::tile_of(std::int64_t entry) const {
  const layout::Layout& layout = problem_.layout;
  BackwardTile<F> tile;
  tile.b = batches_ == 1 ? task_.key_batch : entry / per_batch_;
  tile.entry =
      plan::entry_of(layout, problem_.keys.heads(), width(), task_.key_head, entry % per_batch_);
  const std::int64_t number =
      (tile.b * problem_.q.size(1) + tile.entry.head) * layout.tiles().count() + tile.entry.tile;
  tile.place = number * parts_ + entry % parts_;
  tile.runs = layout.runs(tile.b, tile.entry.head, tile.entry.tile);
  return tile;
}

template <class F>
bool BackwardWorker<F>::looks_at_chunk(const BackwardTile<F>& tile) const {
  const auto reaches = std::ranges::partition_point(
      tile.runs, [&](const layout::Run& run) { return run.end() <= task_.keys.begin; });
  return tile.entry.queries > 0 && reaches != tile.runs.end() && reaches->begin() < task_.keys.end;
}

// The tile's P and dS for the current block; places it does not look at are zero.
template <class F>
void BackwardWorker<F>::run_tile(BackwardTile<F>& tile, std::size_t number, std::int64_t rows) {
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
    plan::BackwardKernelArgs args{.tile = {.keys = block.keys + run.begin * plan().dim,
                                           .values = block.values + run.begin * plan().value_dim,
                                           .key_positions = block.positions + run.begin,
                                           .count = run.end - run.begin,
                                           .queries = tile.room.q_lanes,
                                           .positions = tile.room.queries.positions,
                                           .active = tile.entry.queries,
                                           .b = tile.b,
                                           .h = tile.entry.head,
                                           .score_captures = problem_.score_captures.data(),
                                           .mask_captures = problem_.mask_captures.data(),
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
    gradients_.set(args);
    shared_.kernels.block(run.full, shared_.exact)(args);
    if (!gradients_.add(run.end - run.begin, tile.entry.queries)) shared_.nan = true;
    shared_.poisoned.note(poisoned_, {tile.b, tile.entry.head, tile.entry.tile});
  }
  clear_until(rows);
}

// all[k] += sum over the group's queries of a[k][q] * b[q], for the keys of the current block.
template <class F>
void BackwardWorker<F>::sum_over_queries(const LazyKernel<plan::ReduceArgs>& kernel, const F* a,
                                         const F* b, F* all, F* own, std::int64_t rows,
                                         std::int64_t length) {
  const std::span<const Segment> segments = blocks_.now().segments;
  const bool contiguous = segments.size() == 1;
  F* first = all + (segments.front().begin - task_.keys.begin) * length;
  if (!contiguous) std::fill_n(own, rows * length, F{0});
  kernel({.a = a,
          .b = b,
          .c = contiguous ? first : own,
          .rows = rows,
          .tiles = static_cast<std::int64_t>(tiles_.size())});
  if (contiguous) return;
  for (const Segment& segment : segments) {
    F* to = all + (segment.begin - task_.keys.begin) * length;
    const F* from = own + segment.place * length;
    for (std::int64_t i = 0; i < (segment.end - segment.begin) * length; ++i) to[i] += from[i];
  }
}

// All tiles of the group against the current block, and what that adds to dK and dV.
template <class F>
void BackwardWorker<F>::run_block() {
  const auto whole = [&](const plan::ReduceSpec& spec) {
    const std::int64_t step = spec.rows_at_once();
    return (blocks_.now().count + step - 1) / step * step;
  };
  const std::int64_t k_rows = whole(shared_.kernels.dk_spec);
  const std::int64_t v_rows = whole(shared_.kernels.dv_spec);
  for (std::size_t i = 0; i < tiles_.size(); ++i) run_tile(tiles_[i], i, std::max(k_rows, v_rows));
  sum_over_queries(exact_dout_ ? shared_.kernels.exact_sum_dv : shared_.kernels.sum_dv,
                   room_.probabilities, room_.dout_rows, room_.dv, room_.block_dv, v_rows,
                   value_dim_);
  sum_over_queries(exact_queries_ ? shared_.kernels.exact_sum_dk : shared_.kernels.sum_dk,
                   room_.dscores, room_.q_rows, room_.dk, room_.block_dk, k_rows, dim_);
}

// The chunk's part of a tile's dQ; the thread that completes the sum writes it.
template <class F>
void BackwardWorker<F>::deliver_dq(const BackwardTile<F>& tile, const F* part) {
  const F* sum = shared_.dq.deliver(tile.place, task_.chunk, part);
  if (sum == nullptr || tile.entry.queries == 0) return;
  watch(sum, width() * plan().dim);
  room_.delivered.find(problem_.layout, tile.entry.tile, tile.entry.first_query, tile.entry.queries,
                       width());
  std::fill_n(room_.factors, width(), static_cast<F>(problem_.scale));
  shared_.kernels.dq_to_rows({.source = sum, .target = room_.dq_rows, .factors = room_.factors});
  store_rows(shared_.kernels.store_dq, room_.dq_rows, plan().dim, problem_.dq, tile.b,
             tile.entry.head, room_.delivered.rows, tile.entry.queries);
}

template <class F>
void BackwardWorker<F>::run_group(std::int64_t first, std::int64_t end) {
  shared_.workers.check();
  tiles_ = {};
  blocks_.clear();
  for (std::int64_t e = first; e < end; ++e) {
    BackwardTile<F> tile = tile_of(e);
    if (!looks_at_chunk(tile)) {
      deliver_dq(tile, nullptr);
      continue;
    }
    tile.room = room_.tiles[tiles_.size()];
    tile.load(shared_.kernels, problem_, shared_.terms, room_.factors);
    blocks_.want(tile.runs, task_.keys);
    std::construct_at(room_.group + tiles_.size(), tile);
    tiles_ = {room_.group, tiles_.size() + 1};
  }
  if (tiles_.empty()) return;
  if (shared_.exact) {
    const auto rows = static_cast<std::int64_t>(tiles_.size()) * width();
    exact_queries_ = has_nonfinite(room_.q_rows, rows * dim_);
    exact_dout_ = has_nonfinite(room_.dout_rows, rows * value_dim_);
  }
  blocks_.start();
  while (blocks_.next()) run_block();
  for (const BackwardTile<F>& tile : tiles_) deliver_dq(tile, tile.room.dq);
}

// The chunk's rows, scaled and converted.
template <class F>
void BackwardWorker<F>::store(const CopyKernel& copy, const View& to, F* from, std::int64_t length,
                              F scale) {
  const std::int64_t keys = task_.keys.count();
  watch(from, keys * length);
  for (std::int64_t i = 0; i < keys * length; ++i) from[i] *= scale;
  const std::int64_t first = task_.keys.begin - problem_.keys.positions().begin;
  copy({.source = from,
        .source_stride = length * static_cast<std::int64_t>(sizeof(F)),
        .source_index = nullptr,
        .target = rows_of(to, task_.key_batch, task_.key_head) + first * row_bytes(to),
        .target_stride = row_bytes(to),
        .target_index = nullptr,
        .count = keys});
}

template <class F>
void BackwardWorker<F>::run() {
  const std::int64_t group = plan::tiles_per_backward_group(plan());
  const std::int64_t rows = task_.keys.count() + block_rows(plan()) - plan().key_block;
  std::fill_n(room_.dk, rows * dim_, F{0});
  std::fill_n(room_.dv, rows * value_dim_, F{0});
  // What pads a row is read and has to be a number.
  std::fill_n(room_.q_rows, group * width() * dim_, F{0});
  std::fill_n(room_.dout_rows, group * width() * value_dim_, F{0});
  gradients_.clear();
  const std::int64_t entries = batches_ * per_batch_;
  for (std::int64_t first = 0; first < entries; first += group) {
    if (shared_.nan && !shared_.exact) return shared_.give_up();  // all will be computed again
    run_group(first, std::min(entries, first + group));
  }
  store(shared_.kernels.store_dk, problem_.dk, room_.dk, dim_, static_cast<F>(problem_.scale));
  store(shared_.kernels.store_dv, problem_.dv, room_.dv, value_dim_, F{1});
  gradients_.deliver(task_.number);
}

template <class F>
std::int64_t scratch_of(const plan::TilePlan& plan, std::int64_t keys, std::int64_t contributions,
                        const plan::ModScratch& mods) {
  return measured([&](Carver& carver) { BackwardRoom<F>().carve(carver, plan, keys, mods); }) +
         TaskGradients<F>::bytes_of_block(plan, contributions);
}

}  // namespace

template <class F>
void run_task(BackwardShared<F>& shared, const plan::BackwardTask& task, Workspace& workspace) {
  BackwardWorker<F>(shared, task, workspace).run();
}

std::int64_t backward_scratch(const plan::TilePlan& plan, std::int64_t keys,
                              std::int64_t contributions, const plan::ModScratch& mods) {
  return plan.compute == DType::f64 ? scratch_of<double>(plan, keys, contributions, mods)
                                    : scratch_of<float>(plan, keys, contributions, mods);
}

template <class F>
WorkspaceNeed workspace_need(const BackwardShared<F>& shared) {
  const plan::TilePlan& plan = shared.kernels.plan;
  const std::int64_t keys = shared.schedule.longest;
  const std::int64_t bytes = measured([&](Carver& carver) {
    BackwardRoom<F>().carve(carver, plan, keys, shared.kernels.mods);
    TaskGradients<F>(shared.kernels, shared.problem.captured, shared.captured).carve(carver);
  });
  // Every run has a key; those of a tile do not overlap.
  const std::int64_t runs = std::min(shared.problem.layout.most_runs(), keys);
  return {.bytes = static_cast<std::size_t>(bytes),
          .wanted = static_cast<std::size_t>(plan::tiles_per_backward_group(plan) * runs),
          .block = static_cast<std::size_t>(plan.key_block)};
}

template WorkspaceNeed workspace_need(const BackwardShared<float>&);
template WorkspaceNeed workspace_need(const BackwardShared<double>&);
template void run_task(BackwardShared<float>&, const plan::BackwardTask&, Workspace&);
template void run_task(BackwardShared<double>&, const plan::BackwardTask&, Workspace&);

}  // namespace treadle::run
