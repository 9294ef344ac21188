// Rows of scores: dot products, the score mod and the mask applied.
//
// In: a problem and dot products. Out: rows of modified, masked scores. Read ScoreRow::compute()
// first.
#include "reference/rows.h"

#include <limits>
#include <numeric>

#include "base/element.h"
#include "base/error.h"

namespace treadle::reference {

Sizes::Sizes(const Problem& problem)
    : batch(problem.q.size(0)),
      heads(problem.q.size(1)),
      key_batch(problem.k.size(0)),
      key_heads(problem.k.size(1)),
      queries(problem.q.size(2)),
      keys(problem.k.size(2)),
      dim(problem.q.size(3)),
      value_dim(problem.v.size(3)) {}

template <class F>
std::vector<F> head_rows(const ConstView& view, std::int64_t batch, std::int64_t head) {
  std::vector<F> rows(static_cast<std::size_t>(view.size(2) * view.size(3)));
  const std::int64_t start = batch * view.stride(0) + head * view.stride(1);
  base::visit_dtype(view.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto out = rows.begin();
    for (std::int64_t i = 0; i < view.size(2); ++i) {
      for (std::int64_t j = 0; j < view.size(3); ++j) {
        *out++ = static_cast<F>(
            base::load_as<T>(view.data(), start + i * view.stride(2) + j * view.stride(3)));
      }
    }
  });
  return rows;
}

template <class F>
std::vector<F> transposed(std::span<const F> matrix, std::int64_t rows, std::int64_t columns) {
  std::vector<F> result(matrix.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      result[static_cast<std::size_t>(j * rows + i)] =
          matrix[static_cast<std::size_t>(i * columns + j)];
    }
  }
  return result;
}

template <class F>
void row_times(std::span<const F> x, std::span<const F> matrix, std::span<F> out) {
  std::fill(out.begin(), out.end(), F{0});
  const std::size_t columns = out.size();
  for (std::size_t d = 0; d < x.size(); ++d) {
    const F factor = x[d];
    const F* row = matrix.data() + d * columns;
    for (std::size_t n = 0; n < columns; ++n) out[n] += factor * row[n];
  }
}

template <class F>
ScoreRow<F>::ScoreRow(const Problem& problem, std::int64_t keys)
    : score_mod_(problem.score_mod.graph, problem.score_mod.memory),
      mask_(problem.mask.graph, problem.mask.memory),
      keys_(static_cast<std::size_t>(keys)),
      scores_(static_cast<std::size_t>(keys)),
      visible_(static_cast<std::size_t>(keys)) {
  std::iota(keys_.begin(), keys_.end(), problem.first_kv);
}

template <class F>
void ScoreRow<F>::compute(std::span<const F> plain, std::int64_t b, std::int64_t h,
                          std::int64_t q) {
  const auto count = static_cast<std::int64_t>(keys_.size());
  const auto fail_on_poison = [&](const auto& run, std::string_view what, std::size_t n) {
    base::fail_mod("{}: {}, at (b {}, h {}, q {}, kv {})", what,
                   run.poison_reason(0, static_cast<std::int64_t>(n)), b, h, q, keys_[n]);
  };

  mask_({.score = {}, .grad = {}, .b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = keys_}, count);
  const auto seen = mask_.booleans(0);
  const auto unsure = mask_.poison(0);
  for (std::size_t n = 0; n < keys_.size(); ++n) {
    if (!unsure.empty() && unsure[n] != 0) fail_on_poison(mask_, "mask", n);
    visible_[n] = seen[n];
  }

  score_mod_({.score = plain, .grad = {}, .b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = keys_},
             count);
  const auto modified = score_mod_.reals(0);
  const auto poison = score_mod_.poison(0);
  for (std::size_t n = 0; n < keys_.size(); ++n) {
    if (visible_[n] != 0 && !poison.empty() && poison[n] != 0)
      fail_on_poison(score_mod_, "score mod", n);
    scores_[n] = visible_[n] != 0 ? modified[n] : -std::numeric_limits<F>::infinity();
  }
}

template std::vector<float> head_rows(const ConstView&, std::int64_t, std::int64_t);
template std::vector<double> head_rows(const ConstView&, std::int64_t, std::int64_t);
template std::vector<float> transposed(std::span<const float>, std::int64_t, std::int64_t);
template std::vector<double> transposed(std::span<const double>, std::int64_t, std::int64_t);
template void row_times(std::span<const float>, std::span<const float>, std::span<float>);
template void row_times(std::span<const double>, std::span<const double>, std::span<double>);
template class ScoreRow<float>;
template class ScoreRow<double>;

}  // namespace treadle::reference
