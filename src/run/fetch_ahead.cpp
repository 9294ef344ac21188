// The addresses of a task's rows. Read look_at() first.
#include "run/fetch_ahead.h"

#include <algorithm>

#include "run/rows.h"

namespace treadle::run {
namespace {

template <class Void>
std::int64_t bytes_of_row(const BasicView<Void>& view) {
  return view.size(3) * static_cast<std::int64_t>(size_of(view.dtype()));
}

}  // namespace

bool FetchAhead::add(const std::byte* row, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes && count_ < most; at += plan::fetch_bytes)
    pieces_[count_++] = row + at;
  return count_ < most;
}

// Queries, and where their results go.
void FetchAhead::add_queries(const ForwardShared& shared, const plan::Task& task) {
  const ForwardProblem& problem = shared.problem;
  const plan::TilePlan& widest = shared.pass.widest().plan;
  const layout::Tiles& tiles = shared.pass.layout().tiles();
  for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
    const plan::Entry entry = plan::entry_of(shared.pass.layout(), problem.keys.heads(),
                                             widest.width(), task.key_head, e);
    const std::byte* queries = rows_of(problem.q, task.b, entry.head);
    const std::byte* results = rows_of(problem.out, task.b, entry.head);
    const passes::Axis& axis = tiles.axis(entry.tile);
    for (std::int64_t i = 0; i < entry.queries; ++i) {
      const std::int64_t query = entry.first_query + i;
      // Lines, which are most, without divisions.
      const std::int64_t position =
          axis.outer_count == 1 ? axis.low + query * axis.step : tiles.query(entry.tile, query);
      const std::int64_t row = position - tiles.queries().begin;
      if (!add(queries + row * row_bytes(problem.q), bytes_of_row(problem.q))) return;
      if (!add(results + row * row_bytes(problem.out), bytes_of_row(problem.out))) return;
    }
  }
}

// Keys and values: those of a tile that come after those of the tiles before it.
void FetchAhead::add_keys(const ForwardShared& shared, const plan::Task& task,
                          const layout::Layout& layout) {
  const KeySource& keys = shared.problem.keys;
  const plan::TilePlan& widest = shared.pass.widest().plan;
  const std::int64_t key_bytes = widest.dim * static_cast<std::int64_t>(size_of(keys.key_type()));
  const std::int64_t value_bytes =
      widest.value_dim * static_cast<std::int64_t>(size_of(keys.value_type()));
  KeyRows rows;
  std::int64_t seen = 0;
  for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
    const plan::Entry entry =
        plan::entry_of(layout, keys.heads(), widest.width(), task.key_head, e);
    for (const layout::Run& run : layout.runs(task.b, entry.head, entry.tile)) {
      for (std::int64_t i = run.pieces_before(seen); i < run.count(); ++i) {
        const layout::Range piece = run.piece(i);
        for (std::int64_t key = std::max(piece.begin, seen); key < piece.end; ++key) {
          if (key < rows.begin || key >= rows.end) rows = keys.rows(task.b, task.key_head, key);
          add(rows.key(key), key_bytes);
          if (!add(rows.value(key), value_bytes)) return;
        }
        seen = std::max(seen, piece.end);
      }
    }
  }
}

void FetchAhead::look_at(const ForwardShared& shared, const plan::Task* next) {
  count_ = 0;
  if (next != nullptr) {
    add_queries(shared, *next);
    for (const ForwardPass::Term& term : shared.pass.terms) add_keys(shared, *next, term.layout);
  }
  finish();
}

void FetchAhead::finish() {
  pieces_[count_] = reinterpret_cast<const std::byte*>(pieces_);
  list_ = {pieces_, pieces_ + count_};
}

template <class F>
void FetchAhead::add_queries(const BackwardShared<F>& shared, const plan::BackwardTask& task) {
  const BackwardProblem& problem = shared.problem;
  const layout::Tiles& tiles = shared.pass.layout.tiles();
  const std::int64_t group = problem.q.size(1) / problem.keys.heads();
  const std::int64_t b = problem.keys.batch() == 1 ? 0 : task.key_batch;
  const std::int64_t q_bytes = bytes_of_row(problem.q), dout_bytes = bytes_of_row(problem.dout);
  for (std::int64_t tile = task.tiles.begin; tile < task.tiles.end; ++tile) {
    const passes::Axis& axis = tiles.axis(tile);  // a line, as all of residues
    const std::int64_t first = axis.low - tiles.queries().begin;
    const std::int64_t q_step = axis.step * row_bytes(problem.q);
    const std::int64_t dout_step = axis.step * row_bytes(problem.dout);
    const std::int64_t dq_step = axis.step * row_bytes(problem.dq);
    for (std::int64_t h = task.key_head * group; h < (task.key_head + 1) * group; ++h) {
      const std::byte* q = rows_of(problem.q, b, h) + first * row_bytes(problem.q);
      const std::byte* dout = rows_of(problem.dout, b, h) + first * row_bytes(problem.dout);
      const std::byte* dq = rows_of(problem.dq, b, h) + first * row_bytes(problem.dq);
      for (std::int64_t i = 0; i < axis.count; ++i) {
        add(q + i * q_step, q_bytes);
        add(dout + i * dout_step, dout_bytes);
        if (!add(dq + i * dq_step, q_bytes)) return;
      }
    }
  }
}

template <class F>
void FetchAhead::add_keys(const BackwardShared<F>& shared, const plan::BackwardTask& task) {
  const BackwardProblem& problem = shared.problem;
  const KeySource& keys = problem.keys;
  const std::int64_t key_bytes = bytes_of_row(problem.dk), value_bytes = bytes_of_row(problem.dv);
  const std::byte* dk = rows_of(problem.dk, task.key_batch, task.key_head);
  const std::byte* dv = rows_of(problem.dv, task.key_batch, task.key_head);
  const std::int64_t dk_row = row_bytes(problem.dk), dv_row = row_bytes(problem.dv);
  const std::int64_t first = keys.positions().begin;
  KeyRows rows;
  for (std::int64_t i = 0; i < task.own.count(); ++i) {
    const std::int64_t key = task.own.piece(i).begin;
    if (key < rows.begin || key >= rows.end) rows = keys.rows(task.key_batch, task.key_head, key);
    add(rows.key(key), key_bytes);
    add(rows.value(key), value_bytes);
    add(dk + (key - first) * dk_row, key_bytes);
    if (!add(dv + (key - first) * dv_row, value_bytes)) return;
  }
}

template <class F>
void FetchAhead::look_at(const BackwardShared<F>& shared, const plan::BackwardTask* next) {
  count_ = 0;
  if (next != nullptr) {
    add_queries(shared, *next);
    add_keys(shared, *next);
  }
  finish();
}

template void FetchAhead::look_at(const BackwardShared<float>&, const plan::BackwardTask*);
template void FetchAhead::look_at(const BackwardShared<double>&, const plan::BackwardTask*);

}  // namespace treadle::run
