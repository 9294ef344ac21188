// Attention, one row of scores at a time.
//
// In: a problem. Out: out, lse, max. Read run() first, then finish_row().
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/copy.h"
#include "base/parallel.h"
#include "reference/attention.h"
#include "reference/rows.h"

namespace treadle::reference {
namespace {

template <class F>
struct Row {
  F lse, max;
};

// Softmax of one row times V. `weights` is room for the row's probabilities. A sink of -inf is none.
// `factor(n)` is what dropout multiplies the weight of key n with.
template <class F, class Factor>
Row<F> finish_row(std::span<const F> scores, std::span<const std::uint8_t> visible,
                  std::span<const F> values, F sink, const Factor& factor, std::span<F> weights,
                  std::span<F> out) {
  constexpr F infinity = std::numeric_limits<F>::infinity();
  F max = -infinity;
  for (const F s : scores) max = s > max || std::isnan(s) ? s : max;
  std::fill(out.begin(), out.end(), F{0});
  if (max == -infinity) return {sink, -infinity};  // sees nothing: -inf minus -inf would be NaN

  const F top = sink > max ? sink : max;
  F sum = 0;
  for (std::size_t n = 0; n < scores.size(); ++n) {
    weights[n] = std::isnan(max) ? max : std::exp(scores[n] - top);
    sum += visible[n] != 0 ? weights[n] : F{0};
  }
  for (std::size_t n = 0; n < scores.size(); ++n) {
    if (visible[n] == 0) continue;  // not even 0 * inf
    const F* row = values.data() + n * out.size();
    const F weight = weights[n] * factor(n);  // 0 where it is dropped, and 0 * inf is NaN
    for (std::size_t d = 0; d < out.size(); ++d) out[d] += weight * row[d];
  }
  sum += sink == infinity ? F{1} : std::exp(sink - top);
  for (F& x : out) x /= sum;
  // An infinite score makes the weights NaN, but the logarithm of the sum is infinite.
  return {max == infinity ? infinity : top + std::log(sum), max};
}

template <class F>
Forward run(const Problem& problem, const base::Workers& workers) {
  const Sizes size(problem);
  Tensor out(dtype_of<F>, {size.batch, size.heads, size.queries, size.value_dim});
  Forward result{Tensor(), Tensor(dtype_of<F>, {size.batch, size.heads, size.queries}),
                 Tensor(dtype_of<F>, {size.batch, size.heads, size.queries})};
  F* out_data = out.template data<F>().data();
  F* lse = result.lse.template data<F>().data();
  F* max = result.max.template data<F>().data();

  base::parallel_for(workers, size.batch * size.heads, [&](std::int64_t task) {
    const std::int64_t b = task / size.heads;
    const std::int64_t h = task % size.heads;
    const std::int64_t key_batch = size.key_batch_of(b);
    const std::int64_t key_head = h / size.group();
    const std::vector<F> q = head_rows<F>(problem.q, b, h);
    const std::vector<F> k =
        transposed<F>(head_rows<F>(problem.k, key_batch, key_head), size.keys, size.dim);
    const std::vector<F> v = head_rows<F>(problem.v, key_batch, key_head);
    const F sink = problem.sinks.empty()
                       ? -std::numeric_limits<F>::infinity()
                       : static_cast<F>(problem.sinks[static_cast<std::size_t>(h)]);
    ScoreRow<F> row(problem, size.keys);
    std::vector<F> plain(static_cast<std::size_t>(size.keys)), weights(plain.size());
    const auto dim = static_cast<std::size_t>(size.dim);
    const auto value_dim = static_cast<std::size_t>(size.value_dim);
    for (std::int64_t m = 0; m < size.queries; ++m) {
      workers.check();
      row_times<F>(std::span(q).subspan(static_cast<std::size_t>(m) * dim, dim), k, plain);
      for (F& s : plain) s *= static_cast<F>(problem.scale);
      row.compute(plain, problem.first_b + b, h, problem.first_q + m);
      const auto at = static_cast<std::size_t>(task * size.queries + m);
      const auto factor = [&](std::size_t n) {
        return static_cast<F>(
            row.dropout_factor(problem.dropout, problem.first_b + b, h, problem.first_q + m, n));
      };
      const Row<F> done = finish_row<F>(row.scores(), row.visible(), v, sink, factor, weights,
                                        {out_data + at * value_dim, value_dim});
      lse[at] = done.lse;
      max[at] = done.max;
    }
  });
  result.out =
      problem.q.dtype() == dtype_of<F> ? std::move(out) : base::convert(out, problem.q.dtype());
  return result;
}

}  // namespace

std::int64_t scratch_bytes(DType compute, std::int64_t keys, std::int64_t dim,
                           std::int64_t value_dim) {
  // K and V in both orders, and a handful of rows; the graphs' own columns come on top. Lengths
  // that no memory holds may be asked about.
  const std::int64_t per_key =
      static_cast<std::int64_t>(size_of(compute)) * (2 * dim + 2 * value_dim + 8);
  std::int64_t bytes = 0;
  return __builtin_mul_overflow(per_key, keys, &bytes) ? std::numeric_limits<std::int64_t>::max()
                                                       : bytes;
}

Forward forward(const Problem& problem, const base::Workers& workers) {
  const DType type = compute_type(problem.q.dtype(), problem.k.dtype(), problem.v.dtype());
  return type == DType::f64 ? run<double>(problem, workers) : run<float>(problem, workers);
}

}  // namespace treadle::reference
