// Gradients as FlexAttention computes them in eager mode for 16-bit inputs: what autograd makes of
// softmax(mod(Q K^T)).to(16 bits) V. Softmax and what goes through it are in f32; every product of
// matrices adds in f32 and rounds what it gives.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "exactness.h"
#include "traced.h"

namespace treadle::test {

// Where rowsum(P * dP) comes from: autograd has the weights. A backward that keeps no weights has
// only the output, rounded to 16 bits: rowsum(dO * O).
enum class Delta { weights, output };

struct EagerGradients {
  Tensor dq, dk, dv;
};

namespace detail {

// Of one query of one head.
struct EagerRow {
  std::vector<float> weights, slopes;  // by key: P before it is rounded, dmod / dscore * scale
};

// Values by key; an output that does not depend on keys has one for all.
template <class T>
auto by_key(std::span<const T> values) {
  return [=](std::size_t n) { return values[values.size() == 1 ? 0 : n]; };
}

// For mods without captures.
class EagerSoftmax {
 public:
  EagerSoftmax(const ExactnessCase& c, double scale)
      : scale_(scale), mod_(traced_score(c.score_mod)), mask_(traced_mask(c.mask)) {}

  EagerRow operator()(const std::vector<float>& products, std::int64_t h, std::int64_t m) {
    const std::size_t keys = products.size();
    const std::int64_t b = 0;
    std::vector<std::int64_t> kv(keys);
    std::iota(kv.begin(), kv.end(), 0);
    std::vector<double> scores(keys);
    const auto run = [&](auto& interpreter) {
      interpreter({.score = scores, .b = {&b, 1}, .h = {&h, 1}, .q = {&m, 1}, .kv = kv},
                  static_cast<std::int64_t>(keys));
    };
    const auto mod_at = [&](double apart) {
      for (std::size_t n = 0; n < keys; ++n)
        scores[n] = static_cast<double>(products[n] * static_cast<float>(scale_)) + apart;
      run(modified_);
      const auto values = by_key(modified_.reals(0));
      std::vector<double> all(keys);
      for (std::size_t n = 0; n < keys; ++n) all[n] = values(n);
      return all;
    };
    const std::vector<double> modified = mod_at(0), above = mod_at(step), below = mod_at(-step);
    run(visible_);
    const auto seen = by_key(visible_.booleans(0));

    EagerRow row{std::vector<float>(keys, 0), std::vector<float>(keys, 0)};
    float max = -std::numeric_limits<float>::infinity();
    for (std::size_t n = 0; n < keys; ++n)
      if (seen(n) != 0) max = std::max(max, static_cast<float>(modified[n]));
    float sum = 0;
    for (std::size_t n = 0; n < keys; ++n) {
      if (seen(n) == 0) continue;
      sum += row.weights[n] = std::exp(static_cast<float>(modified[n]) - max);
      row.slopes[n] = static_cast<float>((above[n] - below[n]) / (2 * step) * scale_);
    }
    for (float& p : row.weights) p /= sum;
    return row;
  }

 private:
  static constexpr double step = 1e-4;
  double scale_;
  Traced mod_, mask_;
  ir::Interpreter<double> modified_{mod_.graph, {}}, visible_{mask_.graph, {}};
};

inline float dot(const double* x, const double* y, std::int64_t count) {
  float sum = 0;
  for (std::int64_t d = 0; d < count; ++d)
    sum += static_cast<float>(x[d]) * static_cast<float>(y[d]);
  return sum;
}

// to += factor * x, in f32.
inline void add(float factor, const double* x, float* to, std::int64_t count) {
  for (std::int64_t d = 0; d < count; ++d) to[d] += factor * static_cast<float>(x[d]);
}

}  // namespace detail

// One batch; as many key heads as heads, and values as long as keys. Every query sees something.
inline EagerGradients eager_backward(const ExactnessCase& c, const Tensor& queries,
                                     const Tensor& keys, const Tensor& values, const Tensor& dout,
                                     double scale, Delta from) {
  const DType type = queries.dtype();
  const Array q{ConstView(queries)}, k{ConstView(keys)}, v{ConstView(values)}, g{ConstView(dout)};
  detail::EagerSoftmax softmax(c, scale);
  const std::int64_t rows = q.shape[2], count = k.shape[2], dim = q.shape[3];
  std::vector<float> dq(q.data.size()), dk(k.data.size()), dv(v.data.size());
  std::vector<float> products(static_cast<std::size_t>(count)), dp(products.size());
  for (std::int64_t h = 0; h < q.shape[1]; ++h) {
    for (std::int64_t m = 0; m < rows; ++m) {
      float* dq_row = dq.data() + (h * rows + m) * dim;
      for (std::int64_t n = 0; n < count; ++n) {
        const auto i = static_cast<std::size_t>(n);
        products[i] = detail::dot(q.row(0, h, m), k.row(0, h, n), dim);
        dp[i] = rounded(detail::dot(g.row(0, h, m), v.row(0, h, n), dim), type);
      }
      const detail::EagerRow row = softmax(products, h, m);
      float delta = 0;
      if (from == Delta::weights) {
        for (std::size_t n = 0; n < dp.size(); ++n) delta += row.weights[n] * dp[n];
      } else {
        std::vector<float> out(static_cast<std::size_t>(dim));
        for (std::int64_t n = 0; n < count; ++n)
          detail::add(rounded(row.weights[static_cast<std::size_t>(n)], type), v.row(0, h, n),
                      out.data(), dim);
        for (std::int64_t d = 0; d < dim; ++d)
          delta += static_cast<float>(g.row(0, h, m)[d]) *
                   rounded(out[static_cast<std::size_t>(d)], type);
      }
      for (std::int64_t n = 0; n < count; ++n) {
        const auto i = static_cast<std::size_t>(n);
        const float p = row.weights[i];
        if (p == 0) continue;
        const std::int64_t to = (h * count + n) * dim;
        const float ds = rounded(p * (dp[i] - delta) * row.slopes[i], type);
        detail::add(rounded(p, type), g.row(0, h, m), dv.data() + to, dim);
        detail::add(ds, q.row(0, h, m), dk.data() + to, dim);
        detail::add(ds, k.row(0, h, n), dq_row, dim);
      }
    }
  }
  const auto tensor = [&](const std::vector<float>& from, const Dims& shape) {
    Tensor to(type, shape);
    for (std::size_t i = 0; i < from.size(); ++i)
      base::store_double(to.view().data(), type, static_cast<std::int64_t>(i),
                         static_cast<double>(from[i]));
    return to;
  };
  return {tensor(dq, q.shape), tensor(dk, k.shape), tensor(dv, v.shape)};
}

}  // namespace treadle::test
