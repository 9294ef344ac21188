// Attention as a textbook writes it: loops over doubles that share nothing with Treadle but the
// views they read. Gradients are central differences of it.
//
//   Plain plain(q, k, v);                                    // any views
//   plain.mask = [](auto, auto, auto q, auto kv) { return q >= kv; };
//   expect_near(causal.forward({q, k, v}).out, plain.run().out, 1e-5);
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "base/copy.h"
#include "base/element.h"
#include "treadle/dropout.h"
#include "treadle/tensor.h"

namespace treadle::test {

// Row-major doubles.
struct Array {
  Dims shape;
  std::vector<double> data;

  explicit Array(Dims dims)
      : shape(std::move(dims)), data(static_cast<std::size_t>(count_of(shape))) {}

  // The elements of a view, found by its strides.
  explicit Array(const ConstView& view) : Array(view.shape()) {
    Dims index(shape.size());
    for (double& x : data) {
      std::int64_t offset = 0;
      for (std::size_t axis = 0; axis < index.size(); ++axis) {
        offset += index[axis] * view.strides()[axis];
      }
      x = base::load_double(view.data(), view.dtype(), offset);
      for (std::size_t axis = index.size(); axis-- > 0;) {
        if (++index[axis] < shape[axis]) break;
        index[axis] = 0;
      }
    }
  }

  [[nodiscard]] const double* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return data.data() + ((b * shape[1] + h) * shape[2] + i) * shape[3];
  }
};

struct Plain {
  using Integer = std::int64_t;
  struct Result {
    Array out, lse, max;
  };

  Array q, k, v;
  double scale;
  std::function<double(double s, Integer b, Integer h, Integer q, Integer kv)> score;
  std::function<bool(Integer b, Integer h, Integer q, Integer kv)> mask;
  std::vector<double> sinks;  // of each head, or none
  Dropout dropout;

  Plain(const ConstView& queries, const ConstView& keys, const ConstView& values)
      : q(queries), k(keys), v(values), scale(1 / std::sqrt(static_cast<double>(q.shape[3]))) {}

  [[nodiscard]] Result run() const {
    const Dims rows{q.shape[0], q.shape[1], q.shape[2]};
    Result result{Array({rows[0], rows[1], rows[2], v.shape[3]}), Array(rows), Array(rows)};
    std::size_t row = 0;
    for (Integer b = 0; b < rows[0]; ++b) {
      for (Integer h = 0; h < rows[1]; ++h) {
        for (Integer m = 0; m < rows[2]; ++m, ++row) run_row(result, row, b, h, m);
      }
    }
    return result;
  }

  // Of sum(dout * out) + sum(dlse * lse), by each of these numbers. They may be q.data, k.data,
  // v.data, or what score reads.
  [[nodiscard]] Array gradient(const Dims& shape, std::vector<double>& by, const Array& dout,
                               const Array& dlse) const {
    const auto loss = [&] {
      const Result now = run();
      double sum = 0;
      for (std::size_t i = 0; i < dout.data.size(); ++i) sum += dout.data[i] * now.out.data[i];
      for (std::size_t i = 0; i < dlse.data.size(); ++i) {
        if (dlse.data[i] != 0) sum += dlse.data[i] * now.lse.data[i];
      }
      return sum;
    };
    Array result(shape);
    constexpr double step = 1e-5;
    for (std::size_t i = 0; i < by.size(); ++i) {
      const double at = by[i];
      by[i] = at + step;
      const double above = loss();
      by[i] = at - step;
      const double below = loss();
      by[i] = at;
      result.data[i] = (above - below) / (2 * step);
    }
    return result;
  }

 private:
  void run_row(Result& result, std::size_t row, Integer b, Integer h, Integer m) const {
    const Integer key_batch = k.shape[0] == 1 ? 0 : b;
    const Integer key_head = h / (q.shape[1] / k.shape[1]);
    std::vector<std::pair<Integer, double>> seen;  // key and score
    for (Integer n = 0; n < k.shape[2]; ++n) {
      if (mask && !mask(b, h, m, n)) continue;
      double s = 0;
      for (Integer d = 0; d < q.shape[3]; ++d)
        s += q.row(b, h, m)[d] * k.row(key_batch, key_head, n)[d];
      seen.emplace_back(n, score ? score(s * scale, b, h, m, n) : s * scale);
    }
    double max = -std::numeric_limits<double>::infinity();
    for (const auto& [n, s] : seen) max = std::max(max, s);
    const double sink = sinks.empty() ? -std::numeric_limits<double>::infinity()
                                      : sinks[static_cast<std::size_t>(h)];
    const double top = std::max(max, sink);
    double sum = sinks.empty() ? 0 : std::exp(sink - top);
    double* out = result.out.data.data() + row * static_cast<std::size_t>(v.shape[3]);
    for (const auto& [n, s] : seen) {
      const double p = std::exp(s - top);
      sum += p;
      const double f = keeps(dropout, b, h, m, n) ? 1 / (1 - dropout.probability) : 0;
      for (Integer d = 0; d < v.shape[3]; ++d) out[d] += f * p * v.row(key_batch, key_head, n)[d];
    }
    for (Integer d = 0; d < v.shape[3] && !seen.empty(); ++d) out[d] /= sum;
    result.max.data[row] = max;
    result.lse.data[row] = seen.empty() ? sink : top + std::log(sum);
  }
};

// The tolerance is absolute below 1 and relative above.
inline void expect_near(const ConstView& seen, const Array& expected, double tolerance) {
  ASSERT_EQ(seen.shape(), expected.shape);
  const Array got(seen);
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    const double want = expected.data[i];
    if (got.data[i] == want) continue;  // infinities too
    ASSERT_NEAR(got.data[i], want, tolerance * std::max(1.0, std::abs(want))) << "element " << i;
  }
}

inline Tensor random_tensor(std::uint64_t seed, DType dtype, Dims shape) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Tensor tensor(dtype, std::move(shape));
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    base::store_double(tensor.view().data(), dtype, i, normal(random));
  }
  return tensor;
}

// Between elements of two tensors of one shape.
inline double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  const Tensor x = base::convert(a, DType::f64);
  const Tensor y = base::convert(b, DType::f64);
  for (std::size_t i = 0; i < x.data<double>().size(); ++i)
    largest = std::max(largest, std::abs(x.data<double>()[i] - y.data<double>()[i]));
  return largest;
}

// Bit by bit, NaN included.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  const auto bytes = [](const Tensor& t) {
    const auto* data = static_cast<const char*>(ConstView(t).data());
    return std::string(data, data + static_cast<std::size_t>(t.count()) * size_of(t.dtype()));
  };
  return a.dtype() == b.dtype() && a.shape() == b.shape() && bytes(a) == bytes(b);
}

}  // namespace treadle::test
