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

template <std::same_as<FetchAhead::Rows>... More>
bool FetchAhead::add(std::int64_t count, const More&... rows) {
  const auto pieces_of = [](const Rows& one) {
    return (one.bytes + plan::fetch_bytes - 1) / plan::fetch_bytes;
  };
  const std::int64_t room = std::min(count, (most - count_) / (pieces_of(rows) + ...));
  // By value: what is written could otherwise be a row.
  const auto put = [this, room](Rows one) {
    for (; one.bytes > 0; one.bytes -= plan::fetch_bytes, one.first += plan::fetch_bytes) {
      const std::byte** to = pieces_ + count_;
      for (std::int64_t i = 0; i < room; ++i) to[i] = one.first + i * one.step;
      count_ += room;
    }
  };
  (put(rows), ...);
  return room == count;
}

// Queries, and where their results go.
void FetchAhead::add_queries(const ForwardShared& shared, const plan::Task& task) {
  const ForwardProblem& problem = shared.problem;
  const plan::TilePlan& widest = shared.pass.widest().plan;
  const layout::Tiles& tiles = shared.pass.layout().tiles();
  const std::int64_t query_row = row_bytes(problem.q), query_bytes = bytes_of_row(problem.q);
  const std::int64_t result_row = row_bytes(problem.out), result_bytes = bytes_of_row(problem.out);
  for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
    const plan::Entry entry = plan::entry_of(shared.pass.layout(), problem.keys.heads(),
                                             widest.width(), task.key_head, e);
    const std::byte* queries = rows_of(problem.q, task.b, entry.head);
    // Of rows that become states there are none.
    const std::byte* results =
        problem.out.data() == nullptr ? nullptr : rows_of(problem.out, task.b, entry.head);
    const auto add_rows = [&](std::int64_t row, std::int64_t step, std::int64_t count) {
      const Rows of_queries{queries + row * query_row, step * query_row, query_bytes};
      if (results == nullptr) return add(count, of_queries);
      return add(count, of_queries,
                 Rows{results + row * result_row, step * result_row, result_bytes});
    };
    const passes::Axis& axis = tiles.axis(entry.tile);
    if (tiles.packed() || axis.outer_count == 1) {  // a line, as most are
      const std::int64_t step = tiles.packed() ? 1 : axis.step;
      if (!add_rows(tiles.row(entry.tile, entry.first_query), step, entry.queries)) return;
      continue;
    }
    for (std::int64_t i = 0; i < entry.queries; ++i)
      if (!add_rows(tiles.row(entry.tile, entry.first_query + i), 1, 1)) return;
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
  // Keys begin, begin + step, ...: as far as their rows are regular, then on from there.
  const auto add_rows = [&](std::int64_t begin, std::int64_t step, std::int64_t count) {
    while (count > 0) {
      if (begin < rows.begin || begin >= rows.end) rows = keys.rows(task.b, task.key_head, begin);
      const std::int64_t left = rows.end - begin;
      const std::int64_t together = step * count <= left ? count : (left + step - 1) / step;
      if (!add(together, Rows{rows.key(begin), step * rows.key_stride, key_bytes},
               Rows{rows.value(begin), step * rows.value_stride, value_bytes}))
        return false;
      begin += together * step;
      count -= together;
    }
    return true;
  };
  std::int64_t seen = 0;
  for (std::int64_t e = task.first; e < task.first + task.count; ++e) {
    const plan::Entry entry =
        plan::entry_of(layout, keys.heads(), widest.width(), task.key_head, e);
    for (const layout::Run& run : layout.runs(task.b, entry.head, entry.tile)) {
      std::int64_t i = run.pieces_before(seen);
      if (i == run.count()) continue;
      if (run.width() == 1) {
        if (!add_rows(run.piece(i).begin, run.step(), run.count() - i)) return;
      } else {
        for (; i < run.count(); ++i) {
          const layout::Range piece = run.piece(i);
          const std::int64_t begin = std::max(piece.begin, seen);
          if (!add_rows(begin, 1, piece.end - begin)) return;
        }
      }
      seen = std::max(seen, run.end());
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
    const auto rows_from = [&](const auto& view, std::int64_t h, std::int64_t bytes) {
      const std::int64_t row = row_bytes(view);
      return Rows{rows_of(view, b, h) + first * row, axis.step * row, bytes};
    };
    for (std::int64_t h = task.key_head * group; h < (task.key_head + 1) * group; ++h) {
      if (!add(axis.count, rows_from(problem.q, h, q_bytes), rows_from(problem.dout, h, dout_bytes),
               rows_from(problem.dq, h, q_bytes)))
        return;
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
    if (!add(1, Rows{rows.key(key), 0, key_bytes}, Rows{rows.value(key), 0, value_bytes},
             Rows{dk + (key - first) * dk_row, 0, key_bytes},
             Rows{dv + (key - first) * dv_row, 0, value_bytes}))
      return;
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
