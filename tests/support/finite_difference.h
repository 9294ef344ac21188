// Gradients of attention against central differences, in fp64.
//
//   Case c = random_case(random, {.heads = 4, .key_heads = 2});
//   c.options.score_mod = ...;  c.options.gradients = {"table"};
//   expect_gradients_match(c, {{"table", table}});
//
// The loss is <out, weight> + <lse, lse_weight> with random weights, so out and lse are both
// differentiated.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "fuzz.h"
#include "treadle/treadle.h"

namespace treadle::test {

struct CaseSizes {
  std::int64_t batch = 2, heads = 2, key_batch = 2, key_heads = 2, queries = 5, keys = 6, dim = 3,
               value_dim = 2;
};

inline Tensor random_f64(std::mt19937_64& random, Dims shape) {
  Tensor tensor(DType::f64, std::move(shape));
  for (double& x : tensor.data<double>()) x = random_real(random, -1, 1);
  return tensor;
}

struct Case {
  Tensor q, k, v, weight, lse_weight;
  Options options;
  Dropout dropout = {};  // of every call: it keeps the same pairs
};

inline Case random_case(std::mt19937_64& random, const CaseSizes& s) {
  Case c{random_f64(random, {s.batch, s.heads, s.queries, s.dim}),
         random_f64(random, {s.key_batch, s.key_heads, s.keys, s.dim}),
         random_f64(random, {s.key_batch, s.key_heads, s.keys, s.value_dim}),
         random_f64(random, {s.batch, s.heads, s.queries, s.value_dim}),
         random_f64(random, {s.batch, s.heads, s.queries}),
         {}};
  return c;
}

// A captured buffer whose gradient is checked.
struct Checked {
  std::string name;
  Tensor* tensor;
};

inline double loss(const Attention& attention, const Case& c) {
  const Forward y = attention.forward(
      {c.q, c.k, c.v},
      {.captures = {}, .executor = serial_executor(), .lse = true, .dropout = c.dropout});
  double sum = 0;
  for (std::size_t i = 0; i < y.out.data<double>().size(); ++i) {
    sum += y.out.data<double>()[i] * c.weight.data<double>()[i];
  }
  for (std::size_t i = 0; i < y.lse.data<double>().size(); ++i) {
    const double lse = y.lse.data<double>()[i];
    if (std::isfinite(lse))
      sum += lse * c.lse_weight.data<double>()[i];  // a row that sees nothing has no slope
  }
  return sum;
}

inline void expect_gradients_match(Case& c, const std::vector<Checked>& captures,
                                   double tolerance = 1e-6) {
  const Attention attention = compile(c.options);
  const Call call{.lse = true, .dropout = c.dropout};
  const Forward y = attention.forward({c.q, c.k, c.v}, call);
  const Backward g =
      attention.backward({c.q, c.k, c.v}, {y.out, y.lse}, c.weight, ConstView(c.lse_weight), call);

  const auto check = [&](const std::string& name, Tensor& tensor, const Tensor& gradient) {
    double scale = 1e-3;
    for (const double x : gradient.data<double>()) scale = std::max(scale, std::fabs(x));
    for (std::size_t i = 0; i < tensor.data<double>().size(); ++i) {
      double& x = tensor.data<double>()[i];
      const double saved = x;
      const double step = 1e-5;
      x = saved + step;
      const double up = loss(attention, c);
      x = saved - step;
      const double down = loss(attention, c);
      x = saved;
      const double difference = (up - down) / (2 * step);
      ASSERT_NEAR(gradient.data<double>()[i], difference, tolerance * scale)
          << name << ", element " << i;
    }
  };
  check("q", c.q, g.dq);
  check("k", c.k, g.dk);
  check("v", c.v, g.dv);
  for (const Checked& capture : captures) check(capture.name, *capture.tensor, g.of(capture.name));
}

}  // namespace treadle::test
