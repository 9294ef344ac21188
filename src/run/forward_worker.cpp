// Read run_task() first: queries in, chunk after chunk of keys, results out.
#include "run/forward_worker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "run/all_numbers.h"
#include "run/blocks.h"
#include "run/key_blocks.h"

namespace treadle::run {
namespace {

// Tiles share blocks of keys as long as this many more keys pass than each has to look at.
constexpr double most_shared = 1.25;

template <class F>
class Worker {
 public:
  Worker(ForwardShared& shared, const plan::Task& task, Workspace& workspace);

  void run();

 private:
  const ForwardSpec& spec() const { return shared_.kernels.spec(); }
  void carve(Carver carver);
  void load_queries(Tile<F>& tile);
  void run_chunk(std::int64_t chunk, bool careful);
  void run_blocks(std::span<Tile<F>> tiles, std::int64_t begin, std::int64_t end, bool careful);
  void run_tile(Tile<F>& tile, bool careful);
  void settle(Tile<F>& tile);
  void save(std::int64_t chunk);
  void fold();
  void finish(Tile<F>& tile);
  bool write(Tile<F>& tile, bool last_try);
  std::size_t partial_at(std::int64_t chunk, std::size_t tile) const;

  ForwardShared& shared_;
  const ForwardProblem& problem_;
  const plan::Task& task_;
  Workspace& work_;
  std::int64_t tile_count_;
  std::int64_t key_block_ = 0;
  std::vector<Tile<F>> tiles_;
  KeyBlocks<F> blocks_;
  F *scores_ = nullptr, *rows_ = nullptr, *factors_ = nullptr;
  std::int64_t poisoned_ = 0;
};

template <class F>
Worker<F>::Worker(ForwardShared& shared, const plan::Task& task, Workspace& workspace)
    : shared_(shared),
      problem_(shared.problem),
      task_(task),
      work_(workspace),
      tile_count_(problem_.layout->tiles().count()),
      key_block_(shared.kernels.plan(1).key_block),
      blocks_(shared.kernels, problem_.k, problem_.v, task.b, task.key_head, workspace) {
  for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
    const plan::Entry entry =
        plan::entry_of(*problem_.layout, problem_.k.size(1), shared.most_queries, task.key_head, e);
    if (entry.queries == 0) continue;
    Tile<F> tile;
    tile.head = entry.head;
    tile.tile = entry.tile;
    tile.first_query = entry.first_query;
    tile.active = entry.queries;
    const int lanes = spec().target.lanes(spec().compute);
    const auto whole = static_cast<std::size_t>((tile.active + lanes - 1) / lanes);
    tile.vectors = shared.vectors[whole - 1];
    tile.width = shared.kernels.plan(tile.vectors).width();
    tile.runs = problem_.layout->runs(task.b, tile.head, tile.tile);
    tiles_.push_back(tile);
  }
  Carver measure;
  carve(measure);
}

// Called twice: a carver without memory measures.
template <class F>
void Worker<F>::carve(Carver carver) {
  const auto pass = [&](Carver& c) {
    std::int64_t width = 0;
    for (Tile<F>& tile : tiles_) {
      tile.rows = c.take<std::int32_t>(tile.width);
      tile.queries = c.take<F>(tile.width * spec().dim);
      tile.part = TileState<F>::carve(c, tile.width, spec().value_dim);
      tile.total = TileState<F>::carve(c, tile.width, spec().value_dim);
      width = std::max(width, tile.width);
    }
    scores_ = c.take<F>(key_block_ * width);
    blocks_.use(KeyBlocks<F>::Room::carve(c, key_block_, spec().dim, spec().value_dim));
    factors_ = c.take<F>(width);
    rows_ = c.take<F>(width * std::max(spec().dim, spec().value_dim));
  };
  pass(carver);
  Carver real(work_.room(carver.used()));
  pass(real);
}

// Rows by index, into the compute type, scaled and transposed. Lanes without a query repeat the
// last one.
template <class F>
void Worker<F>::load_queries(Tile<F>& tile) {
  const layout::Tiles& tiles = problem_.layout->tiles();
  for (std::int64_t i = 0; i < tile.width; ++i) {
    const std::int64_t place = tile.first_query + std::min(i, tile.active - 1);
    tile.rows[i] = static_cast<std::int32_t>(tiles.query(tile.tile, place));
  }
  const std::int64_t dim = spec().dim;
  const plan::CopyArgs copy{.source = rows_of(problem_.q, task_.b, tile.head),
                            .source_stride = row_bytes(problem_.q),
                            .source_index = tile.rows,
                            .target = rows_,
                            .target_stride = dim * static_cast<std::int64_t>(sizeof(F)),
                            .target_index = nullptr,
                            .count = tile.width};
  shared_.kernels.load_q()(&copy);
  std::fill_n(factors_, tile.width, static_cast<F>(problem_.scale * spec().score.factor()));
  const plan::TransposeArgs flip{.source = rows_, .target = tile.queries, .factors = factors_};
  shared_.kernels.queries_to_lanes(tile.vectors)(&flip);
}

template <class F>
void Worker<F>::run_tile(Tile<F>& tile, bool careful) {
  find_stretches(work_.stretches, work_.block, tile.runs, tile.next_run);
  for (const Stretch& stretch : work_.stretches) {
    const plan::ForwardKernelArgs args{
        .tile = {.keys = blocks_.keys() + stretch.begin * spec().dim,
                 .values = blocks_.values() + stretch.begin * spec().value_dim,
                 .key_positions = blocks_.indices() + stretch.begin,
                 .count = stretch.end - stretch.begin,
                 .queries = tile.queries,
                 .positions = tile.rows,
                 .active = tile.active,
                 .b = task_.b,
                 .h = tile.head,
                 .score_captures = problem_.score_words.data(),
                 .mask_captures = problem_.mask_words.data(),
                 .poisoned = &poisoned_},
        .scores = scores_,
        .sums = tile.part.sums,
        .maximum = tile.part.maximum,
        .weight = tile.part.weight};
    shared_.kernels.block(tile.vectors, !stretch.full, careful)(&args);
    if (poisoned_ != 0) [[unlikely]] {
      poisoned_ = 0;
      const std::int64_t here =
          (task_.b * problem_.q.size(1) + tile.head) * tile_count_ + tile.tile;
      std::int64_t known = shared_.poisoned.load();
      while ((known < 0 || here < known) && !shared_.poisoned.compare_exchange_weak(known, here)) {
      }
    }
  }
}

template <class F>
void Worker<F>::run_blocks(std::span<Tile<F>> tiles, std::int64_t begin, std::int64_t end,
                           bool careful) {
  work_.wanted.clear();
  for (Tile<F>& tile : tiles) add_wanted(work_.wanted, tile.runs, begin, end);
  std::int64_t sum = 0;
  for (const Segment& segment : work_.wanted) sum += segment.end - segment.begin;
  const std::int64_t keys = join(work_.wanted);
  const double each = static_cast<double>(sum) / static_cast<double>(tiles.size());
  if (tiles.size() > 1 && static_cast<double>(keys) > most_shared * each) {
    // They look at different keys: each on its own.
    for (std::size_t i = 0; i < tiles.size(); ++i)
      run_blocks(tiles.subspan(i, 1), begin, end, careful);
    return;
  }
  blocks_.start();
  while (blocks_.next()) {
    for (Tile<F>& tile : tiles) run_tile(tile, careful);
  }
}

template <class F>
void Worker<F>::run_chunk(std::int64_t chunk, bool careful) {
  for (Tile<F>& tile : tiles_) tile.part.clear(tile.width, spec().value_dim);
  run_blocks(tiles_, chunk * shared_.chunk, (chunk + 1) * shared_.chunk, careful);
}

// The chunk's sums join those before them.
template <class F>
void Worker<F>::settle(Tile<F>& tile) {
  if (!tile.started) {
    std::swap(tile.part, tile.total);
    tile.started = true;
  } else {
    merge(tile.total, tile.part, tile.width, spec().value_dim);
  }
}

template <class F>
std::size_t Worker<F>::partial_at(std::int64_t chunk, std::size_t tile) const {
  const plan::Cut& cut = shared_.schedule.cuts[static_cast<std::size_t>(task_.cut)];
  const auto number = static_cast<std::size_t>((chunk - cut.chunk_begin) * cut.count) + tile;
  return shared_.partial_offsets[static_cast<std::size_t>(task_.cut)] +
         number * state_bytes(shared_.kernels, plan::most_vectors);
}

template <class F>
void Worker<F>::save(std::int64_t chunk) {
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    const Tile<F>& tile = tiles_[i];
    Carver carver(shared_.partial + partial_at(chunk, i));
    const auto kept = TileState<F>::carve(carver, tile.width, spec().value_dim);
    std::copy_n(tile.part.maximum, tile.width, kept.maximum);
    std::copy_n(tile.part.weight, tile.width, kept.weight);
    std::copy_n(tile.part.sums, tile.width * spec().value_dim, kept.sums);
  }
}

// All pieces of a cut task are there: puts them together in order.
template <class F>
void Worker<F>::fold() {
  const plan::Cut& cut = shared_.schedule.cuts[static_cast<std::size_t>(task_.cut)];
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    Tile<F>& tile = tiles_[i];
    tile.total.clear(tile.width, spec().value_dim);
    tile.started = true;
    for (std::int64_t chunk = cut.chunk_begin; chunk < cut.chunk_end; ++chunk) {
      Carver carver(shared_.partial + partial_at(chunk, i));
      merge(tile.total, TileState<F>::carve(carver, tile.width, spec().value_dim), tile.width,
            spec().value_dim);
    }
  }
}

// Results of a tile, transposed into rows and converted. False, and nothing written, if there is a
// NaN whose origin has to be looked into.
template <class F>
bool Worker<F>::write(Tile<F>& tile, bool last_try) {
  const std::int64_t value_dim = spec().value_dim;
  const TileState<F>& state = tile.total;
  // Nothing seen, or nothing but -inf: zeros, whatever the values are.
  const auto sees_nothing = [&](std::int64_t i) {
    return state.maximum[i] == -std::numeric_limits<F>::infinity();
  };
  for (std::int64_t i = 0; i < tile.width; ++i)
    factors_[i] = sees_nothing(i) ? F{1} : F{1} / state.weight[i];
  const plan::TransposeArgs flip{.source = state.sums, .target = rows_, .factors = factors_};
  shared_.kernels.sums_to_rows(tile.vectors)(&flip);
  bool clean = true;
  for (std::int64_t i = 0; i < tile.active; ++i) {
    F* row = rows_ + i * value_dim;
    if (sees_nothing(i)) {
      clean = clean && state.weight[i] == F{0} &&
              std::all_of(row, row + value_dim, [](F x) { return x == F{0}; });
      std::fill_n(row, value_dim, F{0});
    } else {
      clean = clean && state.weight[i] == state.weight[i] && all_numbers(row, value_dim);
    }
  }
  if (!clean && !last_try) return false;

  const plan::CopyArgs copy{
      .source = rows_,
      .source_stride = value_dim * static_cast<std::int64_t>(sizeof(F)),
      .source_index = nullptr,
      .target = const_cast<std::byte*>(rows_of(problem_.out, task_.b, tile.head)),
      .target_stride = row_bytes(problem_.out),
      .target_index = tile.rows,
      .count = tile.active};
  shared_.kernels.store_out()(&copy);
  const auto put = [&](const std::optional<View>& view, auto value_of) {
    if (!view) return;
    F* base =
        static_cast<F*>(view->data()) + task_.b * view->stride(0) + tile.head * view->stride(1);
    for (std::int64_t i = 0; i < tile.active; ++i)
      base[tile.rows[i] * view->stride(2)] = static_cast<F>(value_of(i));
  };
  put(problem_.max,
      [&](std::int64_t i) { return static_cast<double>(state.maximum[i]) * std::numbers::ln2; });
  put(problem_.lse, [&](std::int64_t i) {
    const auto maximum = static_cast<double>(state.maximum[i]);
    if (std::isnan(maximum) || std::isinf(maximum)) return maximum;
    return (std::ceil(maximum) + std::log2(static_cast<double>(state.weight[i]))) *
           std::numbers::ln2;
  });
  return true;
}

template <class F>
void Worker<F>::finish(Tile<F>& tile) {
  if (write(tile, false)) return;
  // Somewhere is an infinity or a NaN: again, keeping hidden keys apart from visible ones.
  tile.started = false;
  std::int64_t chunk = tile.runs.empty() ? 0 : tile.runs.front().begin() / shared_.chunk;
  const std::int64_t end = tile.runs.empty() ? 0 : tile.runs.back().end();
  tile.next_run = 0;
  for (; chunk * shared_.chunk < end; ++chunk) {
    tile.part.clear(tile.width, spec().value_dim);
    run_blocks({&tile, 1}, chunk * shared_.chunk, (chunk + 1) * shared_.chunk, true);
    settle(tile);
  }
  write(tile, true);
}

template <class F>
void Worker<F>::run() {
  for (Tile<F>& tile : tiles_) load_queries(tile);
  for (std::int64_t chunk = task_.chunk_begin; chunk < task_.chunk_end; ++chunk) {
    run_chunk(chunk, false);
    if (task_.cut >= 0) {
      save(chunk);
    } else {
      for (Tile<F>& tile : tiles_) settle(tile);
    }
  }
  if (task_.cut >= 0) {
    // Whoever is last has the others' results before it.
    if (shared_.pieces_left[static_cast<std::size_t>(task_.cut)].fetch_sub(1) > 1) return;
    fold();
  } else if (task_.chunk_begin == task_.chunk_end) {
    for (Tile<F>& tile : tiles_) tile.total.clear(tile.width, spec().value_dim);
  }
  for (Tile<F>& tile : tiles_) finish(tile);
}

}  // namespace

std::size_t state_bytes(const ForwardKernels& kernels, int vectors) {
  Carver carver;
  const std::int64_t width = kernels.plan(vectors).width();
  if (kernels.spec().compute == DType::f64) {
    TileState<double>::carve(carver, width, kernels.spec().value_dim);
  } else {
    TileState<float>::carve(carver, width, kernels.spec().value_dim);
  }
  return carver.used();
}

void run_task(ForwardShared& shared, const plan::Task& task, Workspace& workspace) {
  if (shared.kernels.spec().compute == DType::f64) {
    Worker<double>(shared, task, workspace).run();
  } else {
    Worker<float>(shared, task, workspace).run();
  }
}

}  // namespace treadle::run
