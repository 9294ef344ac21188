// Read Worker::run() first: group after group of tiles, block after block of the chunk's keys.
#include "run/backward_worker.h"

#include <algorithm>
#include <limits>

#include "plan/schedule.h"
#include "run/all_numbers.h"
#include "run/blocks.h"
#include "run/key_blocks.h"
#include "run/scatter.h"

namespace treadle::run {
namespace {

// A tile of queries with everything that passing keys are multiplied with. Rows of the group's
// tiles lie one after the other.
template <class F>
struct Tile {
  std::int64_t b = 0;
  plan::Entry entry;
  std::int64_t place = 0;  // where its dQ is handed over
  std::span<const layout::Run> runs;
  std::size_t next_run = 0;
  std::int32_t* rows = nullptr;
  F *queries = nullptr, *gradients = nullptr;  // [dim][width], [value_dim][width]
  F *power = nullptr, *delta = nullptr;        // [width]
  F* dq = nullptr;                             // [dim][width]
};

template <class F>
class Worker {
 public:
  Worker(BackwardShared<F>& shared, const BackwardTask& task, Workspace& workspace);
  void run();

 private:
  const ForwardSpec& spec() const { return shared_.kernels.spec(); }
  std::int64_t width() const { return shared_.kernels.plan().width(); }
  void carve(Carver& carver);
  void run_group(std::int64_t first, std::int64_t end);
  void load(Tile<F>& tile, std::size_t number);
  void run_tile(Tile<F>& tile, std::size_t number, std::int64_t rows);
  void run_block();
  void give(const Tile<F>& tile, std::int64_t count);
  void hand_over(const Tile<F>& tile, const F* part);
  void store(CopyKernel* kernel, const View& to, F* from, std::int64_t length, F scale);
  Tile<F> tile_of(std::int64_t entry);
  bool wanted(const Tile<F>& tile) const;
  void watch(const F* values, std::int64_t count);

  BackwardShared<F>& shared_;
  const BackwardProblem& problem_;
  const BackwardTask& task_;
  Workspace& work_;
  std::int64_t begin_, end_;  // keys of the chunk
  std::int64_t batches_, per_batch_, most_queries_, parts_;
  std::int64_t dim_, value_dim_;  // padded
  KeyBlocks<F> blocks_;
  std::vector<Tile<F>> tiles_, slots_;
  F *weights_ = nullptr, *slopes_ = nullptr;  // [tiles][block_rows][width]
  F *query_rows_ = nullptr,
    *gradient_rows_ = nullptr;                   // [tiles][width][dim], [tiles][width][value_dim]
  F* out_rows_ = nullptr;                        // [width][dim], of one tile
  F* factors_ = nullptr;                         // [width]
  F *dk_ = nullptr, *dv_ = nullptr;              // [chunk + spare][dim], [chunk + spare][value_dim]
  F *block_dk_ = nullptr, *block_dv_ = nullptr;  // of a block whose keys do not follow one another
  std::int32_t* result_rows_ = nullptr;          // of a tile whose dQ is complete
  F* amounts_ = nullptr;                         // [contributions][key_block][width]
  std::int64_t* places_ = nullptr;
  std::vector<F*> captured_;  // by capture: the sum to add to
  std::int64_t poisoned_ = 0;
};

template <class F>
Worker<F>::Worker(BackwardShared<F>& shared, const BackwardTask& task, Workspace& workspace)
    : shared_(shared),
      problem_(shared.problem),
      task_(task),
      work_(workspace),
      begin_(task.chunk * shared.chunk),
      end_(std::min(begin_ + shared.chunk, problem_.k.size(2))),
      batches_(problem_.k.size(0) == 1 ? problem_.q.size(0) : 1),
      most_queries_(width()),
      parts_((problem_.layout->tiles().height() + most_queries_ - 1) / most_queries_),
      dim_(shared.kernels.padded(spec().dim)),
      value_dim_(shared.kernels.padded(spec().value_dim)),
      blocks_(shared.kernels.forward(), problem_.k, problem_.v, task.key_batch, task.key_head,
              workspace),
      slots_(static_cast<std::size_t>(shared.tiles_per_group)) {
  per_batch_ = problem_.q.size(1) / problem_.k.size(1) * problem_.layout->tiles().count() * parts_;
  Carver measure;
  carve(measure);
  Carver real(work_.room(measure.used()));
  carve(real);
}

template <class F>
void Worker<F>::carve(Carver& c) {
  const std::int64_t group = shared_.tiles_per_group;
  const std::int64_t block = shared_.kernels.block_rows();
  const std::int64_t spare = block - shared_.kernels.plan().key_block;
  for (Tile<F>& tile : slots_) {
    tile.rows = c.take<std::int32_t>(width());
    tile.queries = c.take<F>(width() * spec().dim);
    tile.gradients = c.take<F>(width() * spec().value_dim);
    tile.power = c.take<F>(width());
    tile.delta = c.take<F>(width());
    tile.dq = c.take<F>(width() * spec().dim);
  }
  weights_ = c.take<F>(group * block * width());
  slopes_ = c.take<F>(group * block * width());
  query_rows_ = c.take<F>(group * width() * dim_);
  gradient_rows_ = c.take<F>(group * width() * value_dim_);
  result_rows_ = c.take<std::int32_t>(width());
  out_rows_ = c.take<F>(width() * spec().dim);
  factors_ = c.take<F>(width());
  dk_ = c.take<F>((shared_.chunk + spare) * dim_);
  dv_ = c.take<F>((shared_.chunk + spare) * value_dim_);
  const auto contributions = static_cast<std::int64_t>(shared_.kernels.contributions().size());
  amounts_ = c.take<F>(contributions * shared_.kernels.plan().key_block * width());
  places_ = c.take<std::int64_t>(contributions * shared_.kernels.plan().key_block * width());
  captured_.clear();
  for (std::size_t i = 0; i < problem_.captured.size(); ++i) {
    const CapturedSum& captured = problem_.captured[i];
    captured_.push_back(shared_.captured[i] == nullptr ? static_cast<F*>(captured.sum)
                                                       : c.take<F>(captured.count));
  }
  block_dk_ = c.take<F>(block * dim_);
  block_dv_ = c.take<F>(block * value_dim_);
  blocks_.use(
      KeyBlocks<F>::Room::carve(c, shared_.kernels.plan().key_block, spec().dim, spec().value_dim));
}

template <class F>
Tile<F> Worker<F>::tile_of(std::int64_t entry) {
  Tile<F> tile;
  tile.b = batches_ == 1 ? task_.key_batch : entry / per_batch_;
  tile.entry = plan::entry_of(*problem_.layout, problem_.k.size(1), most_queries_, task_.key_head,
                              entry % per_batch_);
  tile.place = ((tile.b * problem_.q.size(1) + tile.entry.head) * problem_.layout->tiles().count() +
                tile.entry.tile) *
                   parts_ +
               entry % parts_;
  tile.runs = problem_.layout->runs(tile.b, tile.entry.head, tile.entry.tile);
  return tile;
}

// Whether the tile looks at any key of the chunk.
template <class F>
bool Worker<F>::wanted(const Tile<F>& tile) const {
  const auto reaches = std::ranges::partition_point(
      tile.runs, [&](const layout::Run& run) { return run.end() <= begin_; });
  return tile.entry.queries > 0 && reaches != tile.runs.end() && reaches->begin() < end_;
}

// Queries and incoming gradients, as rows and transposed; lse and delta. Lanes without a query are
// zeros that weigh nothing.
template <class F>
void Worker<F>::load(Tile<F>& tile, std::size_t number) {
  const layout::Tiles& tiles = problem_.layout->tiles();
  const std::int64_t active = tile.entry.queries;
  for (std::int64_t i = 0; i < width(); ++i) {
    const std::int64_t place = tile.entry.first_query + std::min(i, active - 1);
    tile.rows[i] = static_cast<std::int32_t>(tiles.query(tile.entry.tile, place));
  }
  const auto copy = [&](CopyKernel* kernel, const ConstView& from, F* to, std::int64_t length) {
    const plan::CopyArgs args{.source = rows_of(from, tile.b, tile.entry.head),
                              .source_stride = row_bytes(from),
                              .source_index = tile.rows,
                              .target = to,
                              .target_stride = length * static_cast<std::int64_t>(sizeof(F)),
                              .target_index = nullptr,
                              .count = active};
    kernel(&args);
    std::fill(to + active * length, to + width() * length, F{0});
  };
  F* queries = query_rows_ + static_cast<std::int64_t>(number) * width() * dim_;
  F* gradients = gradient_rows_ + static_cast<std::int64_t>(number) * width() * value_dim_;
  copy(shared_.kernels.forward().load_q(), problem_.q, queries, dim_);
  copy(shared_.kernels.load_out(), problem_.dout, gradients, value_dim_);
  const auto flip = [&](FlipKernel* kernel, const F* from, F* to, F factor) {
    std::fill_n(factors_, width(), factor);
    const plan::TransposeArgs args{.source = from, .target = to, .factors = factors_};
    kernel(&args);
  };
  flip(shared_.kernels.queries_to_lanes(), queries, tile.queries,
       static_cast<F>(problem_.scale * spec().score.factor()));
  flip(shared_.kernels.gradients_to_lanes(), gradients, tile.gradients, F{1});

  constexpr F infinity = std::numeric_limits<F>::infinity();
  const std::int64_t first = (tile.b * problem_.q.size(1) + tile.entry.head) * problem_.q.size(2);
  for (std::int64_t i = 0; i < width(); ++i) {
    tile.power[i] = i < active ? shared_.rows.power[first + tile.rows[i]] : infinity;
    tile.delta[i] = i < active ? shared_.rows.delta[first + tile.rows[i]] : F{0};
  }
  std::fill_n(tile.dq, width() * spec().dim, F{0});
}

// The tile's weights and slopes for the current block; places it does not look at are zero.
template <class F>
void Worker<F>::run_tile(Tile<F>& tile, std::size_t number, std::int64_t rows) {
  F* weights =
      weights_ + static_cast<std::int64_t>(number) * shared_.kernels.block_rows() * width();
  F* slopes = slopes_ + static_cast<std::int64_t>(number) * shared_.kernels.block_rows() * width();
  find_stretches(work_.stretches, work_.block, tile.runs, tile.next_run);
  std::int64_t done = 0;
  const auto clear_until = [&](std::int64_t end) {
    std::fill(weights + done * width(), weights + end * width(), F{0});
    std::fill(slopes + done * width(), slopes + end * width(), F{0});
  };
  for (const Stretch& stretch : work_.stretches) {
    clear_until(stretch.begin);
    done = stretch.end;
    const plan::BackwardKernelArgs args{
        .tile = {.keys = blocks_.keys() + stretch.begin * spec().dim,
                 .values = blocks_.values() + stretch.begin * spec().value_dim,
                 .key_positions = blocks_.indices() + stretch.begin,
                 .count = stretch.end - stretch.begin,
                 .queries = tile.queries,
                 .positions = tile.rows,
                 .active = tile.entry.queries,
                 .b = tile.b,
                 .h = tile.entry.head,
                 .score_captures = problem_.score_words.data(),
                 .mask_captures = problem_.mask_words.data(),
                 .poisoned = &poisoned_},
        .dout = tile.gradients,
        .lse2 = tile.power,
        .delta = tile.delta,
        .probabilities = weights + stretch.begin * width(),
        .dscores = slopes + stretch.begin * width(),
        .dq = tile.dq,
        .derivative_captures = problem_.derivative_words.data(),
        .contribution_values = amounts_,
        .contribution_offsets = places_,
        .contribution_stride = shared_.kernels.plan().key_block * width(),
        .gradient_strides = problem_.gradient_strides.data()};
    shared_.kernels.slopes(!stretch.full)(&args);
    give(tile, stretch.end - stretch.begin);
    if (poisoned_ != 0) [[unlikely]] {
      poisoned_ = 0;
      const std::int64_t here = tile.place / parts_;
      std::int64_t known = shared_.poisoned.load();
      while ((known < 0 || here < known) && !shared_.poisoned.compare_exchange_weak(known, here)) {
      }
    }
  }
  clear_until(rows);
}

// What the last stretch gives to captures.
template <class F>
void Worker<F>::give(const Tile<F>& tile, std::int64_t count) {
  const std::int64_t apart = shared_.kernels.plan().key_block * width();
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    const CapturedSum& captured = problem_.captured[i];
    for (const std::size_t c : captured.contributions) {
      const Gifts<F> gifts{.amounts = amounts_ + static_cast<std::int64_t>(c) * apart,
                           .places = places_ + static_cast<std::int64_t>(c) * apart,
                           .keys = count,
                           .queries = tile.entry.queries,
                           .width = width(),
                           .separable = shared_.kernels.separable()[c]};
      if (!scatter(gifts, captured_[i], captured.count)) shared_.not_a_number = true;
    }
  }
}

// All tiles of the group against the current block, and what that adds to dK and dV.
template <class F>
void Worker<F>::run_block() {
  const auto whole = [&](std::int64_t length) {
    const std::int64_t step = shared_.kernels.reduce_spec(length).rows_at_once();
    return (blocks_.count() + step - 1) / step * step;
  };
  const std::int64_t k_rows = whole(spec().dim);
  const std::int64_t v_rows = whole(spec().value_dim);
  for (std::size_t i = 0; i < tiles_.size(); ++i) run_tile(tiles_[i], i, std::max(k_rows, v_rows));

  const bool direct = blocks_.contiguous();
  const std::int64_t first = work_.block.front().begin - begin_;
  const auto sum = [&](ReduceKernel* kernel, const F* a, const F* b, F* all, F* own,
                       std::int64_t rows, std::int64_t length) {
    if (!direct) std::fill_n(own, rows * length, F{0});
    const plan::ReduceArgs args{.a = a,
                                .b = b,
                                .c = direct ? all + first * length : own,
                                .rows = rows,
                                .tiles = static_cast<std::int64_t>(tiles_.size())};
    kernel(&args);
    if (direct) return;
    for (const Segment& segment : work_.block) {
      F* to = all + (segment.begin - begin_) * length;
      const F* from = own + segment.position * length;
      for (std::int64_t i = 0; i < (segment.end - segment.begin) * length; ++i) to[i] += from[i];
    }
  };
  sum(shared_.kernels.reduce_v(), weights_, gradient_rows_, dv_, block_dv_, v_rows, value_dim_);
  sum(shared_.kernels.reduce_k(), slopes_, query_rows_, dk_, block_dk_, k_rows, dim_);
}

template <class F>
void Worker<F>::watch(const F* values, std::int64_t count) {
  if (!all_numbers(values, count)) shared_.not_a_number = true;
}

// The chunk's part of a tile's dQ; whoever completes the sum writes it.
template <class F>
void Worker<F>::hand_over(const Tile<F>& tile, const F* part) {
  const F* sum = shared_.dq.bring(tile.place, task_.chunk, part);
  if (sum == nullptr || tile.entry.queries == 0) return;
  watch(sum, width() * spec().dim);
  const layout::Tiles& tiles = problem_.layout->tiles();
  for (std::int64_t i = 0; i < tile.entry.queries; ++i) {
    result_rows_[i] =
        static_cast<std::int32_t>(tiles.query(tile.entry.tile, tile.entry.first_query + i));
  }
  std::fill_n(factors_, width(), static_cast<F>(problem_.scale));
  const plan::TransposeArgs flip{.source = sum, .target = out_rows_, .factors = factors_};
  shared_.kernels.dq_to_rows()(&flip);
  const plan::CopyArgs copy{
      .source = out_rows_,
      .source_stride = spec().dim * static_cast<std::int64_t>(sizeof(F)),
      .source_index = nullptr,
      .target = const_cast<std::byte*>(rows_of(problem_.dq, tile.b, tile.entry.head)),
      .target_stride = row_bytes(problem_.dq),
      .target_index = result_rows_,
      .count = tile.entry.queries};
  shared_.kernels.store_dq()(&copy);
}

template <class F>
void Worker<F>::run_group(std::int64_t first, std::int64_t end) {
  tiles_.clear();
  work_.wanted.clear();
  for (std::int64_t e = first; e < end; ++e) {
    Tile<F> tile = tile_of(e);
    if (!wanted(tile)) {
      hand_over(tile, nullptr);
      continue;
    }
    const Tile<F>& room = slots_[tiles_.size()];
    tile.rows = room.rows;
    tile.queries = room.queries;
    tile.gradients = room.gradients;
    tile.power = room.power;
    tile.delta = room.delta;
    tile.dq = room.dq;
    load(tile, tiles_.size());
    add_wanted(work_.wanted, tile.runs, begin_, end_);
    tiles_.push_back(tile);
  }
  if (tiles_.empty()) return;
  join(work_.wanted);
  blocks_.start();
  while (blocks_.next()) run_block();
  for (const Tile<F>& tile : tiles_) hand_over(tile, tile.dq);
}

// The chunk's rows, scaled and converted.
template <class F>
void Worker<F>::store(CopyKernel* kernel, const View& to, F* from, std::int64_t length, F scale) {
  watch(from, (end_ - begin_) * length);
  for (std::int64_t i = 0; i < (end_ - begin_) * length; ++i) from[i] *= scale;
  const std::int64_t stride = row_bytes(to);
  const plan::CopyArgs copy{
      .source = from,
      .source_stride = length * static_cast<std::int64_t>(sizeof(F)),
      .source_index = nullptr,
      .target =
          const_cast<std::byte*>(rows_of(to, task_.key_batch, task_.key_head)) + begin_ * stride,
      .target_stride = stride,
      .target_index = nullptr,
      .count = end_ - begin_};
  kernel(&copy);
}

template <class F>
void Worker<F>::run() {
  const std::int64_t spare = shared_.kernels.block_rows() - shared_.kernels.plan().key_block;
  std::fill_n(dk_, (end_ - begin_ + spare) * dim_, F{0});
  std::fill_n(dv_, (end_ - begin_ + spare) * value_dim_, F{0});
  // What pads a row is read and has to be a number.
  std::fill_n(query_rows_, shared_.tiles_per_group * width() * dim_, F{0});
  std::fill_n(gradient_rows_, shared_.tiles_per_group * width() * value_dim_, F{0});
  for (std::size_t i = 0; i < captured_.size(); ++i)
    if (shared_.captured[i] != nullptr) std::fill_n(captured_[i], problem_.captured[i].count, F{0});
  const std::int64_t entries = batches_ * per_batch_;
  for (std::int64_t first = 0; first < entries; first += shared_.tiles_per_group)
    run_group(first, std::min(entries, first + shared_.tiles_per_group));
  store(shared_.kernels.store_dk(), problem_.dk, dk_, dim_, static_cast<F>(problem_.scale));
  store(shared_.kernels.store_dv(), problem_.dv, dv_, value_dim_, F{1});
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    if (shared_.captured[i] == nullptr) continue;
    const F* sum = shared_.captured[i]->bring(0, task_.number, captured_[i]);
    F* result = static_cast<F*>(problem_.captured[i].sum);
    if (sum != nullptr && sum != result) std::copy_n(sum, problem_.captured[i].count, result);
  }
}

}  // namespace

template <class F>
void run_task(BackwardShared<F>& shared, const BackwardTask& task, Workspace& workspace) {
  Worker<F>(shared, task, workspace).run();
}

template void run_task(BackwardShared<float>&, const BackwardTask&, Workspace&);
template void run_task(BackwardShared<double>&, const BackwardTask&, Workspace&);

}  // namespace treadle::run
