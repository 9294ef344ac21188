// Rows of a key head against its keys, chunk by chunk, joined in order.
//
//   for (batch, key head):            on any thread
//     for chunk:
//       for block of keys of a run:   a kernel: m, l and O of the chunk go on
//       merge the chunk's m, l and O into those before
//     divide O by l, write rows, lse and max
//
// Few key heads would leave threads idle: then chunks are done on any thread, and their m, l and O
// are kept until all are there. Read Decoder::run() first.
#include "run/decode.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <utility>

#include "plan/chunks.h"
#include "run/row_results.h"
#include "run/tile.h"
#include "run/wanted_keys.h"

namespace treadle::run {
namespace {

// Lists of keys per thread that keep all threads busy to the end.
constexpr std::int64_t enough_lists = 4;

template <class F>
class Decoder {
 public:
  Decoder(const DecodeKernels& kernels, const layout::Layout& layout,
          const DecodeCaptures& captures, const ForwardProblem& problem,
          const base::Workers& workers, Scratch& scratch);

  bool run();

 private:
  // m, l and O of all rows of a key head, row by row.
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
  // A thread's memory.
  struct Room {
    F *queries, *turned, *scores, *rows;
    std::int32_t *positions, *heads, *keys;
    std::byte* frame;
    States part, total;

    Room(Carver& carver, const Decoder& decoder);
  };
  // The keys of a key head of a batch entry.
  struct List {
    std::int64_t b = 0, key_head = 0;
    std::span<const layout::Run> runs;
    layout::Range chunks;
  };

  [[nodiscard]] List list_of(std::int64_t number) const;
  [[nodiscard]] States kept(std::int64_t list, std::int64_t chunk) const;

  void run_list(std::int64_t number, Workspace& workspace);
  void keep_chunk(std::int64_t item, Workspace& workspace) const;
  void join_kept(std::int64_t number, Workspace& workspace);

  void load_queries(const List& list, const Room& room) const;
  void clear(const States& states) const {
    TileState<F>{states.maximum, states.weight, states.sums}.clear(rows_, spec_.value_dim);
  }
  void run_chunk(const List& list, layout::Range keys, const Room& room,
                 const States& states) const;
  void run_keys(const List& list, layout::Range keys, bool full, const Room& room,
                const States& states) const;
  void merge_rows(const States& total, const States& part) const;
  void write(const List& list, const Room& room, const States& total);

  const DecodeKernels& kernels_;
  const plan::DecodeKernelSpec& spec_;
  const layout::Layout& layout_;
  const DecodeCaptures& captures_;
  const ForwardProblem& problem_;
  const base::Workers& workers_;
  Scratch& scratch_;
  std::int64_t batch_, key_heads_, group_, queries_, rows_;
  std::int64_t most_chunks_ = 0;  // of a list
  std::int64_t state_bytes_ = 0;
  std::byte* states_ = nullptr;  // [list][chunk]
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
      key_heads_(problem.keys.heads()),
      group_(layout.extent().heads / key_heads_),
      queries_(layout.extent().queries.count()),
      rows_(group_ * queries_) {}

template <class F>
Decoder<F>::Room::Room(Carver& carver, const Decoder& decoder)
    : queries(carver.take<F>(decoder.rows_ * decoder.spec_.dim)),
      turned(carver.take<F>(decoder.spec_.key_block * decoder.spec_.dim)),
      scores(carver.take<F>(decoder.rows_ * decoder.spec_.key_block)),
      rows(carver.take<F>(decoder.rows_ * decoder.spec_.value_dim)),
      positions(carver.take<std::int32_t>(decoder.rows_)),
      heads(carver.take<std::int32_t>(decoder.rows_)),
      keys(carver.take<std::int32_t>(decoder.spec_.key_block)),
      frame(carver.take<std::byte>(decoder.kernels_.frame)),
      part(carver, decoder.rows_, decoder.spec_.value_dim),
      total(carver, decoder.rows_, decoder.spec_.value_dim) {}

template <class F>
bool Decoder<F>::run() {
  const std::int64_t lists = batch_ * key_heads_, threads = workers_.threads();
  const auto room =
      static_cast<std::size_t>(measured([&](Carver& carver) { Room(carver, *this); }));
  const auto for_each = [&](Scratch::Share& share, std::int64_t count, auto work) {
    base::parallel_for(workers_, count, [&](std::int64_t i) {
      const Scratch::Lease workspace = share.lend();
      (this->*work)(i, *workspace);
    });
  };
  if (lists < enough_lists * threads) {
    for (std::int64_t i = 0; i < lists; ++i)
      most_chunks_ = std::max(most_chunks_, list_of(i).chunks.count());
  }
  if (most_chunks_ <= 1) {
    Scratch::Share share(scratch_, std::min<std::int64_t>(lists, threads), {.bytes = room});
    // From here on nothing is allocated: results are written.
    for_each(share, lists, &Decoder::run_list);
    return clean_;
  }
  state_bytes_ = measured([&](Carver& carver) { States(carver, rows_, spec_.value_dim); });
  const std::int64_t items = lists * most_chunks_;
  Scratch::Share kept(scratch_, 1, {.bytes = static_cast<std::size_t>(items * state_bytes_)});
  states_ = kept.front().memory();
  Scratch::Share share(scratch_, std::min<std::int64_t>(items, threads), {.bytes = room});
  for_each(share, items, &Decoder::keep_chunk);
  for_each(share, lists, &Decoder::join_kept);
  return clean_;
}

template <class F>
typename Decoder<F>::List Decoder<F>::list_of(std::int64_t number) const {
  List list{number / key_heads_, number % key_heads_, {}, {}};
  list.runs = layout_.runs(list.b, list.key_head * group_, 0);
  if (!list.runs.empty())
    list.chunks = plan::chunks_of({list.runs.front().begin(), list.runs.back().end()});
  return list;
}

template <class F>
typename Decoder<F>::States Decoder<F>::kept(std::int64_t list, std::int64_t chunk) const {
  Carver carver(states_ + (list * most_chunks_ + chunk) * state_bytes_);
  return {carver, rows_, spec_.value_dim};
}

template <class F>
void Decoder<F>::run_list(std::int64_t number, Workspace& workspace) {
  Carver carver(workspace.memory());
  Room room(carver, *this);
  workspace.check(carver);
  const List list = list_of(number);
  load_queries(list, room);
  bool started = false;
  for (std::int64_t chunk = list.chunks.begin; chunk < list.chunks.end; ++chunk) {
    const layout::Range keys = plan::keys_of_chunk(chunk);
    if (!reaches(list.runs, keys)) continue;
    clear(room.part);
    run_chunk(list, keys, room, room.part);
    if (started) {
      merge_rows(room.total, room.part);
    } else {
      std::swap(room.total, room.part);
    }
    started = true;
  }
  if (!started) clear(room.total);
  write(list, room, room.total);
}

template <class F>
void Decoder<F>::keep_chunk(std::int64_t item, Workspace& workspace) const {
  const List list = list_of(item / most_chunks_);
  const std::int64_t number = item % most_chunks_;
  const layout::Range keys = plan::keys_of_chunk(list.chunks.begin + number);
  if (number >= list.chunks.count() || !reaches(list.runs, keys)) return;
  Carver carver(workspace.memory());
  const Room room(carver, *this);
  workspace.check(carver);
  load_queries(list, room);
  const States states = kept(item / most_chunks_, number);
  clear(states);
  run_chunk(list, keys, room, states);
}

template <class F>
void Decoder<F>::join_kept(std::int64_t number, Workspace& workspace) {
  Carver carver(workspace.memory());
  const Room room(carver, *this);
  const List list = list_of(number);
  std::optional<States> total;
  for (std::int64_t i = 0; i < list.chunks.count(); ++i) {
    if (!reaches(list.runs, plan::keys_of_chunk(list.chunks.begin + i))) continue;
    if (total) {
      merge_rows(*total, kept(number, i));
    } else {
      total = kept(number, i);
    }
  }
  if (!total) clear(room.total);
  write(list, room, total.value_or(room.total));
}

// Rows in the compute type, scaled.
template <class F>
void Decoder<F>::load_queries(const List& list, const Room& room) const {
  for (std::int64_t g = 0; g < group_; ++g) {
    const std::int64_t h = list.key_head * group_ + g;
    load_rows(kernels_.load_q, problem_.q, list.b, h, nullptr, queries_,
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

// What the rows see of a chunk.
template <class F>
void Decoder<F>::run_chunk(const List& list, layout::Range keys, const Room& room,
                           const States& states) const {
  workers_.check();
  for (const layout::Run& run : runs_near(list.runs, keys)) {
    for (const layout::Run& part : layout::RunPart(run, keys.begin, keys.end)) {
      for (std::int64_t i = 0; i < part.count(); ++i)
        run_keys(list, part.piece(i), run.full(), room, states);
    }
  }
}

template <class F>
void Decoder<F>::run_keys(const List& list, layout::Range keys, bool full, const Room& room,
                          const States& states) const {
  for (std::int64_t at = keys.begin; at < keys.end;) {
    const KeyRows rows = problem_.keys.rows(list.b, list.key_head, at);
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
                                              .b = layout_.extent().first_b + list.b,
                                              .score_captures = captures_.score.data(),
                                              .mask_captures = captures_.mask.data(),
                                              .frame = room.frame,
                                              .turned = room.turned,
                                              .scores = room.scores,
                                              .sums = states.sums,
                                              .maximum = states.maximum,
                                              .weight = states.weight});
    at = end;
  }
}

template <class F>
void Decoder<F>::merge_rows(const States& total, const States& part) const {
  for (std::int64_t r = 0; r < rows_; ++r) {
    merge(total.row(r, spec_.value_dim), part.row(r, spec_.value_dim), std::int64_t{1},
          spec_.value_dim);
  }
}

template <class F>
void Decoder<F>::write(const List& list, const Room& room, const States& total) {
  for (std::int64_t r = 0; r < rows_; ++r) {
    F* row = room.rows + r * spec_.value_dim;
    const F* sums = total.sums + r * spec_.value_dim;
    const double* sink = problem_.sink(list.key_head * group_ + r / queries_);
    const F factor = factor_of(total.maximum[r], total.weight[r], sink);
    for (std::int64_t d = 0; d < spec_.value_dim; ++d) row[d] = sums[d] * factor;
    if (!settle(total.maximum[r], total.weight[r], row, spec_.value_dim)) clean_ = false;
  }
  for (std::int64_t g = 0; g < group_; ++g) {
    const std::int64_t h = list.key_head * group_ + g, first = g * queries_;
    store_rows(kernels_.store_out, room.rows + first * spec_.value_dim, spec_.value_dim,
               problem_.out, list.b, h, nullptr, queries_);
    const auto put = [&](const std::optional<View>& view, auto value_of) {
      put_rows<F>(view, list.b, h, nullptr, queries_, value_of);
    };
    const F *maximum = total.maximum + first, *weight = total.weight + first;
    put(problem_.max, [&](std::int64_t i) { return natural_maximum(maximum[i]); });
    put(problem_.lse,
        [&](std::int64_t i) { return natural_lse(maximum[i], weight[i], problem_.sink(h)); });
  }
}

}  // namespace

void needed(const DecodeKernels& kernels, const layout::Layout& layout, Missing& missing) {
  if (layout.has_full()) missing.add(kernels.full);
  if (layout.has_partial()) missing.add(kernels.masked);
  missing.add(kernels.load_q);
  missing.add(kernels.store_out);
}

void all_of(const DecodeKernels& kernels, bool may_hide, Missing& missing) {
  missing.add(kernels.full);
  if (may_hide) missing.add(kernels.masked);
  missing.add(kernels.load_q);
  missing.add(kernels.store_out);
}

bool decode(const DecodeKernels& kernels, const layout::Layout& layout,
            const DecodeCaptures& captures, const ForwardProblem& problem,
            const base::Workers& workers, Scratch& scratch) {
  if (kernels.spec.compute == DType::f64)
    return Decoder<double>(kernels, layout, captures, problem, workers, scratch).run();
  return Decoder<float>(kernels, layout, captures, problem, workers, scratch).run();
}

}  // namespace treadle::run
