// The addresses of a task's rows. Read look_at() first.
#include "run/fetch_ahead.h"

#include <algorithm>

#include "run/rows.h"

namespace treadle::run {

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
  const auto bytes_of = [](const auto& view) {
    return view.size(3) * static_cast<std::int64_t>(size_of(view.dtype()));
  };
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
      if (!add(queries + row * row_bytes(problem.q), bytes_of(problem.q))) return;
      if (!add(results + row * row_bytes(problem.out), bytes_of(problem.out))) return;
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
  pieces_[count_] = reinterpret_cast<const std::byte*>(pieces_);
  list_ = {pieces_, pieces_ + count_};
}

}  // namespace treadle::run
