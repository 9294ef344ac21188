// Rows of a key head against its keys, chunk by chunk on all threads, then joined in order.
//
//   for (batch, key head, chunk):     on any thread
//     for block of keys of a run:     a kernel: m, l and O of the chunk go on
//     keep m, l and O of the chunk
//   for (batch, key head):            on any thread
//     merge the chunks' m, l and O in order, divide O by l, write rows, lse and max
//
// Read Decoder::run() first.
#include "run/decode.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <span>

#include "plan/chunks.h"
#include "run/nonfinite.h"
#include "run/row_results.h"
#include "run/tile.h"

namespace treadle::run {
namespace {

// More rows fill the lanes of the forward's tiles well enough.
constexpr std::int64_t most_rows = 8;
// Keys of shorter pieces are gathered by the forward.
constexpr std::int64_t shortest_piece = 16;

template <class F>
class Decoder {
 public:
  Decoder(const DecodeKernels& kernels, const layout::Layout& layout,
          const DecodeCaptures& captures, const ForwardProblem& problem,
          const base::Workers& workers, Scratch& scratch);

  bool run();

 private:
  // A thread's memory.
  struct Room {
    F *queries, *turned, *scores, *rows;
    std::int32_t *positions, *heads, *keys;
    std::byte* frame;

    Room(Carver& carver, const Decoder& decoder);
  };
  // m, l and O of all rows of a key head.
  struct States {
    F *maximum, *weight, *sums;

    States(Carver& carver, std::int64_t rows, std::int64_t value_dim)
        : maximum(carver.take<F>(rows)),
          weight(carver.take<F>(rows)),
          sums(carver.take<F>(rows * value_dim)) {}
    [[nodiscard]] TileState<F> row(std::int64_t r, std::int64_t value_dim) const {
      return {maximum + r, weight + r, sums + r * value_dim};
    }
  };

  [[nodiscard]] std::span<const layout::Run> runs_of(std::int64_t b, std::int64_t key_head) const {
    return layout_.runs(b, key_head * group_, 0);
  }
  [[nodiscard]] States states_of(std::int64_t item) const {
    Carver carver(states_ + item * state_bytes_);
    return {carver, rows_, spec_.value_dim};
  }
  void load_queries(std::int64_t b, std::int64_t key_head, const Room& room) const;
  void run_chunk(std::int64_t item, Workspace& workspace) const;
  void run_keys(layout::Range keys, bool full, std::int64_t b, std::int64_t key_head,
                const Room& room, const States& states) const;
  void finish(std::int64_t head, Workspace& workspace);

  const DecodeKernels& kernels_;
  const plan::DecodeKernelSpec& spec_;
  const layout::Layout& layout_;
  const DecodeCaptures& captures_;
  const ForwardProblem& problem_;
  const base::Workers& workers_;
  Scratch& scratch_;
  std::int64_t batch_, heads_, key_heads_, group_, queries_, rows_;
  layout::Range chunks_;  // of all keys
  std::int64_t state_bytes_ = 0;
  std::byte* states_ = nullptr;
  std::atomic<bool> clean_ = true;
};

template <class F>
Decoder<F>::Decoder(const DecodeKernels& kernels, const layout::Layout& layout,
                    const DecodeCaptures& captures, const ForwardProblem& problem,
                    const base::Workers& workers, Scratch& scratch)
    : kernels_(kernels),
      spec_(kernels.spec),
      layout_(layout),
      captures_(captures),
      problem_(problem),
      workers_(workers),
      scratch_(scratch),
      batch_(layout.extent().batch),
      heads_(layout.extent().heads),
      key_heads_(problem.keys.heads()),
      group_(heads_ / key_heads_),
      queries_(layout.extent().queries.count()),
      rows_(group_ * queries_) {
  std::int64_t begin = layout.extent().keys.end, end = 0;
  for (std::int64_t b = 0; b < (layout.per_batch() ? batch_ : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? heads_ : 1); ++h) {
      const auto runs = layout.runs(b, h, 0);
      if (runs.empty()) continue;
      begin = std::min(begin, runs.front().begin());
      end = std::max(end, runs.back().end());
    }
  }
  if (begin < end) chunks_ = plan::chunks_of({begin, end});
  state_bytes_ = measured([&](Carver& carver) { States(carver, rows_, spec_.value_dim); });
}

template <class F>
Decoder<F>::Room::Room(Carver& carver, const Decoder& decoder) {
  const plan::DecodeKernelSpec& spec = decoder.spec_;
  const std::int64_t rows = decoder.rows_;
  queries = carver.take<F>(rows * spec.dim);
  turned = carver.take<F>(spec.key_block * spec.dim);
  scores = carver.take<F>(rows * spec.key_block);
  this->rows = carver.take<F>(rows * spec.value_dim);
  positions = carver.take<std::int32_t>(rows);
  heads = carver.take<std::int32_t>(rows);
  keys = carver.take<std::int32_t>(spec.key_block);
  frame = carver.take<std::byte>(decoder.kernels_.frame);
}

template <class F>
bool Decoder<F>::run() {
  const std::int64_t chunks = chunks_.count(), lists = batch_ * key_heads_;
  const std::int64_t room = measured([&](Carver& carver) { Room(carver, *this); });
  const std::int64_t items = lists * chunks;
  Scratch::Share kept(
      scratch_, 1,
      {.bytes = static_cast<std::size_t>(std::max<std::int64_t>(items, 1) * state_bytes_)});
  states_ = kept.front().memory();
  Scratch::Share share(scratch_, std::min<std::int64_t>(std::max(items, lists), workers_.threads()),
                       {.bytes = static_cast<std::size_t>(room + state_bytes_)});
  // From here on nothing is allocated: results are written.
  base::parallel_for(workers_, items, [&](std::int64_t item) {
    const Scratch::Lease workspace = share.lend();
    run_chunk(item, *workspace);
  });
  base::parallel_for(workers_, lists, [&](std::int64_t list) {
    const Scratch::Lease workspace = share.lend();
    finish(list, *workspace);
  });
  return clean_;
}

// Rows in the compute type, scaled.
template <class F>
void Decoder<F>::load_queries(std::int64_t b, std::int64_t key_head, const Room& room) const {
  for (std::int64_t g = 0; g < group_; ++g) {
    const std::int64_t h = key_head * group_ + g;
    load_rows(kernels_.load_q, problem_.q, b, h, nullptr, queries_,
              room.queries + g * queries_ * spec_.dim, spec_.dim);
    for (std::int64_t i = 0; i < queries_; ++i) {
      room.heads[g * queries_ + i] = static_cast<std::int32_t>(h);
      room.positions[g * queries_ + i] =
          static_cast<std::int32_t>(layout_.extent().queries.begin + i);
    }
  }
  const F factor = static_cast<F>(problem_.scale * kernels_.query_factor);
  for (std::int64_t i = 0; i < rows_ * spec_.dim; ++i) room.queries[i] *= factor;
}

template <class F>
void Decoder<F>::run_chunk(std::int64_t item, Workspace& workspace) const {
  const std::int64_t list = item / chunks_.count();
  const std::int64_t b = list / key_heads_, key_head = list % key_heads_;
  const layout::Range keys = plan::keys_of_chunk(chunks_.begin + item % chunks_.count());
  const States states = states_of(item);
  TileState<F>{states.maximum, states.weight, states.sums}.clear(rows_, spec_.value_dim);
  Carver carver(workspace.memory());
  const Room room(carver, *this);
  workspace.check(carver);
  bool loaded = false;
  for (const layout::Run& run : runs_of(b, key_head)) {
    if (run.end() <= keys.begin || run.begin() >= keys.end) continue;
    for (std::int64_t i = run.pieces_before(keys.begin); i < run.count(); ++i) {
      const layout::Range piece{std::max(run.piece(i).begin, keys.begin),
                                std::min(run.piece(i).end, keys.end)};
      if (piece.begin >= piece.end) break;
      if (!loaded) load_queries(b, key_head, room);
      loaded = true;
      run_keys(piece, run.full(), b, key_head, room, states);
    }
  }
}

template <class F>
void Decoder<F>::run_keys(layout::Range keys, bool full, std::int64_t b, std::int64_t key_head,
                          const Room& room, const States& states) const {
  std::int64_t never = 0;
  for (std::int64_t at = keys.begin; at < keys.end;) {
    const KeyRows rows = problem_.keys.rows(b, key_head, at);
    const std::int64_t end = std::min({keys.end, at + spec_.key_block, rows.end});
    for (std::int64_t i = 0; i < spec_.key_block; ++i)
      room.keys[i] = static_cast<std::int32_t>(std::min(at + i, end - 1));
    (full ? kernels_.full : kernels_.masked)({.keys = rows.key(at),
                                              .key_stride = rows.key_stride,
                                              .values = rows.value(at),
                                              .value_stride = rows.value_stride,
                                              .key_positions = room.keys,
                                              .count = end - at,
                                              .queries = room.queries,
                                              .positions = room.positions,
                                              .heads = room.heads,
                                              .rows = rows_,
                                              .b = b,
                                              .score_captures = captures_.score.data(),
                                              .mask_captures = captures_.mask.data(),
                                              .frame = room.frame,
                                              .poisoned = &never,
                                              .turned = room.turned,
                                              .scores = room.scores,
                                              .sums = states.sums,
                                              .maximum = states.maximum,
                                              .weight = states.weight});
    at = end;
  }
}

template <class F>
void Decoder<F>::finish(std::int64_t list, Workspace& workspace) {
  const std::int64_t b = list / key_heads_, key_head = list % key_heads_;
  Carver carver(workspace.memory());
  const Room room(carver, *this);
  const States total(carver, rows_, spec_.value_dim);
  workspace.check(carver);
  TileState<F>{total.maximum, total.weight, total.sums}.clear(rows_, spec_.value_dim);
  for (std::int64_t chunk = 0; chunk < chunks_.count(); ++chunk) {
    const States part = states_of(list * chunks_.count() + chunk);
    for (std::int64_t r = 0; r < rows_; ++r) {
      merge(total.row(r, spec_.value_dim), part.row(r, spec_.value_dim), std::int64_t{1},
            spec_.value_dim);
    }
  }
  for (std::int64_t r = 0; r < rows_; ++r) {
    F* row = room.rows + r * spec_.value_dim;
    const F* sums = total.sums + r * spec_.value_dim;
    const bool sees_nothing = total.maximum[r] == -std::numeric_limits<F>::infinity();
    const F by = sees_nothing ? F{1} : F{1} / total.weight[r];
    for (std::int64_t d = 0; d < spec_.value_dim; ++d) row[d] = sums[d] * by;
    const bool is_clean =
        sees_nothing ? total.weight[r] == F{0} &&
                           std::all_of(row, row + spec_.value_dim, [](F x) { return x == F{0}; })
                     : total.weight[r] == total.weight[r] && !has_nan(row, spec_.value_dim);
    if (!is_clean) clean_ = false;
    if (sees_nothing) std::fill_n(row, spec_.value_dim, F{0});
  }
  for (std::int64_t g = 0; g < group_; ++g) {
    const std::int64_t h = key_head * group_ + g, first = g * queries_;
    store_rows(kernels_.store_out, room.rows + first * spec_.value_dim, spec_.value_dim,
               problem_.out, b, h, nullptr, queries_);
    const auto put = [&](const std::optional<View>& view, auto value_of) {
      if (!view) return;
      F* base = static_cast<F*>(view->data()) + b * view->stride(0) + h * view->stride(1);
      for (std::int64_t i = 0; i < queries_; ++i)
        base[i * view->stride(2)] = static_cast<F>(value_of(first + i));
    };
    put(problem_.max, [&](std::int64_t r) { return natural_maximum(total.maximum[r]); });
    put(problem_.lse,
        [&](std::int64_t r) { return natural_lse(total.maximum[r], total.weight[r]); });
  }
}

}  // namespace

bool can_decode(const layout::Layout& layout, std::int64_t group) {
  const layout::Extent& extent = layout.extent();
  if (extent.queries.count() * group > most_rows || layout.tiles().count() != 1) return false;
  if (layout.per_head() && group > 1) return false;
  for (std::int64_t b = 0; b < (layout.per_batch() ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head() ? extent.heads : 1); ++h) {
      for (const layout::Run& run : layout.runs(b, h, 0))
        if (run.count() > 1 && run.width() < shortest_piece) return false;
    }
  }
  return true;
}

void needed(const DecodeKernels& kernels, const layout::Layout& layout,
            std::vector<std::function<void()>>& missing) {
  const auto add = [&](const auto& kernel) {
    if (!kernel.ready()) missing.emplace_back([&kernel] { kernel.prepare(); });
  };
  if (layout.has_full()) add(kernels.full);
  if (layout.has_partial()) add(kernels.masked);
  add(kernels.load_q);
  add(kernels.store_out);
}

bool decode(const DecodeKernels& kernels, const layout::Layout& layout,
            const DecodeCaptures& captures, const ForwardProblem& problem,
            const base::Workers& workers, Scratch& scratch) {
  if (kernels.spec.compute == DType::f64)
    return Decoder<double>(kernels, layout, captures, problem, workers, scratch).run();
  return Decoder<float>(kernels, layout, captures, problem, workers, scratch).run();
}

}  // namespace treadle::run
