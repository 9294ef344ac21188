// Row by row, head by head. Read StateJoiner first.
#include "distributed/row_join.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>

#include "base/element.h"
#include "run/row_results.h"
#include "run/tile.h"

namespace treadle::distributed {
namespace {

using layout::Range;

// Those of one head, pass after pass, chunk after chunk.
std::vector<const FoundRows*> of_head(const RowsToJoin& rows, std::int64_t b, std::int64_t h) {
  std::vector<const FoundRows*> found;
  for (const FoundRows& some : rows.found) {
    const bool here =
        b >= some.batch.begin && b < some.batch.end && h >= some.heads.begin && h < some.heads.end;
    if (here) found.push_back(&some);
  }
  std::ranges::stable_sort(found, {},
                           [](const FoundRows* f) { return std::tuple(f->pass, f->chunk); });
  return found;
}

// Calls f(row here, row in memory of the found ones).
template <class Each>
void for_each_row(const FoundRows& found, std::int64_t b, std::int64_t h, std::int64_t first,
                  const Each& f) {
  const std::int64_t head = (b - found.batch.begin) * found.heads.count() + h - found.heads.begin;
  for (const RowRun& run : found.runs)
    for (std::int64_t i = 0; i < run.count; ++i)
      f(run.position + i * run.step - first, head * found.stride + run.row + i);
}

template <class F>
void store_row(const View& to, std::int64_t b, std::int64_t h, std::int64_t row, const F* from) {
  base::visit_dtype(to.dtype(), [&](auto element) {
    using T = typename decltype(element)::type;
    const std::int64_t offset = b * to.stride(0) + h * to.stride(1) + row * to.stride(2);
    for (std::int64_t d = 0; d < to.size(3); ++d)
      base::store_as<T>(to.data(), offset + d * to.stride(3), static_cast<double>(from[d]));
  });
}

template <class F>
class StateJoiner {
 public:
  StateJoiner(std::int64_t rows, std::int64_t value_dim)
      : value_dim_(value_dim),
        total_(rows, value_dim),
        term_(rows, value_dim),
        seen_(static_cast<std::size_t>(rows)) {}

  // All rows of a head: those of which something was found are written.
  void join(const RowsToJoin& rows, std::int64_t b, std::int64_t h, const double* sink, double kept,
            const ForwardViews& results, const run::StateViews* states, std::int64_t head) {
    const std::vector<const FoundRows*> found = of_head(rows, b, h);
    if (found.empty()) return;
    std::ranges::fill(seen_, std::uint8_t{0});
    total_.clear();
    for (std::size_t i = 0; i < found.size();) {
      const std::int64_t pass = found[i]->pass;
      // States of the first term may as well go straight to the total.
      const bool first = i == 0;
      States& to = first ? total_ : term_;
      if (!first) to.clear();
      for (; i < found.size() && found[i]->pass == pass; ++i) {
        for_each_row(*found[i], b, h, rows.positions.begin, [&](std::int64_t row, std::int64_t at) {
          seen_[static_cast<std::size_t>(row)] = 1;
          run::merge(to.row(row), given(*found[i], at), value_dim_);
        });
      }
      if (first) continue;
      for (std::int64_t row = 0; row < rows.positions.count(); ++row)
        if (seen_[static_cast<std::size_t>(row)] != 0)
          run::merge(total_.row(row), term_.row(row), value_dim_);
    }
    for (std::int64_t row = 0; row < rows.positions.count(); ++row)
      if (seen_[static_cast<std::size_t>(row)] == 0) {
        continue;
      } else if (states != nullptr) {
        keep(*states, head * rows.positions.count() + row, row);
      } else {
        write(b, h, row, sink, kept, results);
      }
  }

 private:
  struct States {
    States(std::int64_t rows, std::int64_t length)
        : value_dim(length),
          maximum(static_cast<std::size_t>(rows)),
          weight(maximum.size()),
          sums(static_cast<std::size_t>(rows * length)) {}
    void clear() {
      std::ranges::fill(maximum, -std::numeric_limits<F>::infinity());
      std::ranges::fill(weight, F{0});
      std::ranges::fill(sums, F{0});
    }
    run::RowState<F> row(std::int64_t i) {
      return {maximum.data() + i, weight.data() + i, sums.data() + i * value_dim};
    }
    std::int64_t value_dim;
    std::vector<F> maximum, weight, sums;
  };

  // merge() reads its second state alone.
  run::RowState<F> given(const FoundRows& found, std::int64_t at) const {
    const auto of = [](const void* memory) {
      return const_cast<F*>(static_cast<const F*>(memory));
    };
    return {of(found.maximum) + at, of(found.weight) + at, of(found.sums) + at * value_dim_};
  }

  void keep(const run::StateViews& states, std::int64_t at, std::int64_t row) {
    const run::RowState<F> total = total_.row(row);
    static_cast<F*>(states.maximum)[at] = *total.maximum;
    static_cast<F*>(states.weight)[at] = *total.weight;
    std::copy_n(total.sums, value_dim_, static_cast<F*>(states.sums) + at * value_dim_);
  }

  void write(std::int64_t b, std::int64_t h, std::int64_t row, const double* sink, double kept,
             const ForwardViews& results) {
    const run::RowState<F> state = total_.row(row);
    const F m = *state.maximum, l = *state.weight;
    const F factor = run::factor_of(m, l, sink, kept);
    for (std::int64_t d = 0; d < value_dim_; ++d) state.sums[d] *= factor;
    run::settle(m, l, state.sums, value_dim_);
    store_row(results.out, b, h, row, state.sums);
    const auto put = [&](const std::optional<View>& view, double value) {
      if (!view) return;
      F* base = static_cast<F*>(view->data()) + b * view->stride(0) + h * view->stride(1);
      base[row * view->stride(2)] = static_cast<F>(value);
    };
    put(results.max, run::natural_maximum(m));
    put(results.lse, run::natural_lse(m, l, sink));
  }

  std::int64_t value_dim_;
  States total_, term_;
  std::vector<std::uint8_t> seen_;
};

template <class F>
class GradientJoiner {
 public:
  GradientJoiner(std::int64_t rows, std::int64_t dim)
      : dim_(dim),
        total_(static_cast<std::size_t>(rows * dim)),
        term_(total_.size()),
        has_total_(static_cast<std::size_t>(rows)),
        has_term_(has_total_.size()) {}

  void join(const GradientsToJoin& rows, std::int64_t b, std::int64_t h, const View& dq) {
    const std::vector<const FoundRows*> found = of_head(rows, b, h);
    if (found.empty()) return;
    std::ranges::fill(has_total_, std::uint8_t{0});
    const auto factor = static_cast<F>(rows.scale);
    for (std::size_t i = 0; i < found.size();) {
      const std::int64_t pass = found[i]->pass;
      std::ranges::fill(has_term_, std::uint8_t{0});
      for (; i < found.size() && found[i]->pass == pass; ++i) {
        for_each_row(*found[i], b, h, rows.positions.begin, [&](std::int64_t row, std::int64_t at) {
          add(term_, has_term_, row, static_cast<const F*>(found[i]->sums) + at * dim_);
        });
      }
      for (std::int64_t row = 0; row < rows.positions.count(); ++row) {
        if (has_term_[static_cast<std::size_t>(row)] == 0) continue;
        F* term = term_.data() + row * dim_;
        for (std::int64_t d = 0; d < dim_; ++d) term[d] *= factor;
        add(total_, has_total_, row, term);
      }
    }
    for (std::int64_t row = 0; row < rows.positions.count(); ++row)
      if (has_total_[static_cast<std::size_t>(row)] != 0)
        store_row(dq, b, h, row, total_.data() + row * dim_);
  }

 private:
  void add(std::vector<F>& to, std::vector<std::uint8_t>& has, std::int64_t row,
           const F* from) const {
    F* sum = to.data() + row * dim_;
    std::uint8_t& started = has[static_cast<std::size_t>(row)];
    for (std::int64_t d = 0; d < dim_; ++d) sum[d] = started != 0 ? sum[d] + from[d] : from[d];
    started = 1;
  }

  std::int64_t dim_;
  std::vector<F> total_, term_;
  std::vector<std::uint8_t> has_total_, has_term_;
};

}  // namespace

void join_states(const RowsToJoin& rows, const backend::Sizes& sizes, std::span<const double> sinks,
                 double kept, const ForwardViews& results, const run::StateViews* states,
                 const base::Workers& workers) {
  if (rows.found.empty()) return;
  const auto join = [&](auto number) {
    using F = decltype(number);
    base::parallel_for(workers, sizes.batch * sizes.heads, [&](std::int64_t i) {
      const std::int64_t h = i % sizes.heads;
      StateJoiner<F> joiner(rows.positions.count(), sizes.value_dim);
      joiner.join(rows, i / sizes.heads, h,
                  sinks.empty() ? nullptr : &sinks[static_cast<std::size_t>(h)], kept, results,
                  states, i);
    });
  };
  if (sizes.compute == DType::f64) {
    join(double{});
  } else {
    join(float{});
  }
}

void join_gradients(const GradientsToJoin& rows, const backend::Sizes& sizes, const View& dq,
                    const base::Workers& workers) {
  if (rows.found.empty()) return;
  const auto join = [&](auto number) {
    using F = decltype(number);
    base::parallel_for(workers, sizes.batch * sizes.heads, [&](std::int64_t i) {
      GradientJoiner<F> joiner(rows.positions.count(), sizes.dim);
      joiner.join(rows, i / sizes.heads, i % sizes.heads, dq);
    });
  };
  if (sizes.compute == DType::f64) {
    join(double{});
  } else {
    join(float{});
  }
}

}  // namespace treadle::distributed
