// The Sparse Transformer's patterns through attention itself: uniform weights, softmax, prefixes,
// empty rows, gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "expect_error.h"
#include "treadle/treadle.h"

namespace treadle::patterns {
namespace {

// With q = k = 0 and v[k] = k, each row is the mean of the positions that it sees.
std::vector<double> means(const MaskMod& mask, std::int64_t length, std::int64_t heads = 1,
                          std::int64_t head = 0) {
  const Tensor zeros(DType::f64, {1, heads, length, 1});
  Tensor v(DType::f64, {1, heads, length, 1});
  for (std::int64_t i = 0; i < v.count(); ++i) {
    v.data<double>()[static_cast<std::size_t>(i)] = static_cast<double>(i % length);
  }
  Options options;
  options.mask = mask;
  const Tensor out = attention({zeros, zeros, v}, options).out;
  std::vector<double> rows;
  for (std::int64_t q = 0; q < length; ++q) rows.push_back(out.at<double>({0, head, q, 0}));
  return rows;
}

void expect_rows(const std::vector<double>& rows, const std::vector<double>& expected,
                 std::size_t first = 0) {
  ASSERT_EQ(rows.size(), first + expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(rows[first + i], expected[i], 1e-12) << "row " << first + i;
  }
}

TEST(SparseTransformerAttention, UniformAllAndLocal) {
  const std::vector<double> all_rows = means(all(), 16);
  const std::vector<double> near = means(local({.window = 4}), 16);
  const std::vector<double> far = means(local({.window = 8}), 16);
  for (std::size_t q = 0; q < 16; ++q) {
    const auto at = static_cast<double>(q);
    EXPECT_NEAR(all_rows[q], at / 2, 1e-12);
    EXPECT_NEAR(near[q], q < 3 ? at / 2 : at - 1.5, 1e-12);
    EXPECT_NEAR(far[q], q < 7 ? at / 2 : at - 3.5, 1e-12);
  }
}

TEST(SparseTransformerAttention, UniformStrided) {
  expect_rows(means(strided({.stride = 4}), 16), {0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 8, 9});
  expect_rows(means(strided({.stride = 8}), 16),
              {0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11});
}

TEST(SparseTransformerAttention, UniformFixed) {
  const std::vector<double> last{6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5};
  const std::vector<double> first{14. / 5, 23. / 6,  33. / 7,  11. / 2,
                                  56. / 9, 69. / 10, 83. / 11, 49. / 6};
  const MaskMod one = fixed({.window = 8, .num_verts = 1}, {.size = 4});
  const MaskMod two = fixed({.window = 8, .num_verts = 2}, {.size = 4, .heads = 2});
  expect_rows(means(one, 16), last, 8);
  expect_rows(means(two, 16, 2, 0), last, 8);
  expect_rows(means(two, 16, 2, 1), first, 8);
  for (std::size_t q = 0; q < 8; ++q) {
    EXPECT_NEAR(means(two, 16, 2, 1)[q], static_cast<double>(q) / 2, 1e-12);
  }

  const MaskMod small = fixed({.window = 8, .num_verts = 2}, {.size = 2, .heads = 2});
  expect_rows(means(small, 16, 2, 0), {7, 7.5, 8, 8.5, 9, 9.5, 10, 10.5}, 8);
  expect_rows(means(small, 16, 2, 1),
              {17. / 3, 13. / 2, 36. / 5, 47. / 6, 59. / 7, 9, 86. / 9, 101. / 10}, 8);
}

// Softmax weights: score[q, k] = k from q = 1, k = k, and the identity as values.
Tensor weights(const MaskMod& mask, std::int64_t length, double scale) {
  Tensor q(DType::f64, {1, 1, length, 1});
  Tensor k(DType::f64, {1, 1, length, 1});
  Tensor v(DType::f64, {1, 1, length, length});
  for (std::int64_t i = 0; i < length; ++i) {
    q.at<double>({0, 0, i, 0}) = 1;
    k.at<double>({0, 0, i, 0}) = static_cast<double>(i);
    v.at<double>({0, 0, i, i}) = 1;
  }
  Options options;
  options.mask = mask;
  options.scale = scale;
  return attention({q, k, v}, options).out;
}

TEST(SparseTransformerAttention, Softmax) {
  for (const MaskMod& mask : {all(), to_mask(all_layout(16, {.size = 8}))}) {
    const Tensor p = weights(mask, 16, 0.5);
    EXPECT_NEAR(p.at<double>({0, 0, 1, 0}), .37754, 5e-6);
    EXPECT_NEAR(p.at<double>({0, 0, 1, 1}), .62246, 5e-6);
    const std::vector<double> row8{.00729, .01202, .01981, .03266, .05385,
                                   .08878, .14638, .24133, .39789};
    for (std::int64_t k = 0; k < 16; ++k) {
      const double weight = p.at<double>({0, 0, 8, k});
      if (k < 9) {
        EXPECT_NEAR(weight, row8[static_cast<std::size_t>(k)], 5e-6);
      } else {
        EXPECT_EQ(weight, 0.0);
      }
    }
  }
}

// ---- the switch from a prefix to causal ----

BlockLayout ones(std::int64_t blocks) {
  return {.block_size = 8,
          .heads = 1,
          .query_blocks = blocks,
          .key_blocks = blocks,
          .present = std::vector<std::uint8_t>(static_cast<std::size_t>(blocks * blocks), 1),
          .mask = [](const BlockCell&) { return true; }};
}

TEST(SparseTransformerAttention, AutoregressAtKey) {
  Options options;
  options.mask = autoregress_at_key(ones(2), Capture("p", 0));
  const Attention compiled = compile(options);
  Tensor zeros(DType::f64, {1, 1, 16, 1});
  Tensor identity(DType::f64, {1, 1, 16, 16});
  for (std::int64_t i = 0; i < 16; ++i) identity.at<double>({0, 0, i, i}) = 1;
  for (const std::int64_t p : {0, 5, 8, 11, 15}) {
    // Bound anew for each call; compiled once.
    const Tensor out = compiled.forward({zeros, zeros, identity}, {{Capture("p", p)}, {}}).out;
    for (std::int64_t q = 0; q < 16; ++q) {
      for (std::int64_t k = 0; k < 16; ++k) {
        EXPECT_EQ(out.at<double>({0, 0, q, k}) > 0, k < p || k <= q) << p << " " << q << " " << k;
      }
    }
  }
  EXPECT_ERROR(compiled.forward({zeros, zeros, identity}, {{Capture("p", 16)}, {}}),
               "mask: autoregress_at_key: index 16 along dimension 0 is outside its length 16, at "
               "(b 0, h 0, q 0, kv 0)");
  EXPECT_ERROR(compiled.forward({zeros, zeros, identity}, {{Capture("p", -1)}, {}}),
               "mask: autoregress_at_key: index -1 along dimension 0 is outside its length 16, at "
               "(b 0, h 0, q 0, kv 0)");
}

TEST(SparseTransformerAttention, AutoregressAtKeyOnlyRemoves) {
  // Inside a window of 4, a prefix of 8 makes nothing visible that was not.
  expect_rows(means(autoregress_at_key(local({.window = 4}), Capture("p", 8), 16), 16),
              means(local({.window = 4}), 16));
  // A checkerboard loses what is neither prefix nor past.
  const MaskMod checkers = [](Index, Index, Index q, Index kv) { return (q + kv) % 2 == 0; };
  const std::vector<double> rows = means(autoregress_at_key(checkers, Capture("p", 7), 16), 16);
  for (std::int64_t q = 0; q < 16; ++q) {
    double sum = 0;
    double count = 0;
    for (std::int64_t k = 0; k < 16; ++k) {
      if ((q + k) % 2 != 0 || (k >= 7 && k > q)) continue;
      sum += static_cast<double>(k);
      ++count;
    }
    EXPECT_NEAR(rows[static_cast<std::size_t>(q)], sum / count, 1e-12);
  }
  // Two of them in one mask have one table.
  EXPECT_NO_THROW(means(autoregress_at_key(all(), Capture("p", 3), 16) |
                            autoregress_at_key(checkers, Capture("r", 7), 16),
                        16));
}

TEST(SparseTransformerAttention, AutoregressAtKeyErrors) {
  BlockLayout layout = ones(2);
  layout.mask = {};
  EXPECT_ERROR(autoregress_at_key(layout, Capture("p", 0)),
               "autoregress_at_key: the layout has no mask; it must have one to take visibility "
               "from");
  EXPECT_ERROR(autoregress_at_key(all(), Capture("p", 0.5), 16),
               "autoregress_at_key: the key is f64 of shape []; it must be an integer scalar");
  EXPECT_ERROR(autoregress_at_key(all(), Capture("p", 0), 0),
               "autoregress_at_key: there are 0 keys; it must be at least 1");
}

// ---- rows that see nothing, and gradients ----

TEST(SparseTransformerAttention, ARowThatSeesNothingIsZero) {
  BlockLayout layout = ones(1);
  layout.mask = [](const BlockCell& cell) { return cell.column < cell.row; };
  Options options;
  options.mask = to_mask(layout);
  const Tensor zeros(DType::f64, {1, 1, 8, 1});
  Tensor v(DType::f64, {1, 1, 8, 1});
  for (double& x : v.data<double>()) x = 1;
  const Forward y = attention({zeros, zeros, v}, options, {.lse = true});
  EXPECT_EQ(y.out.at<double>({0, 0, 0, 0}), 0.0);
  EXPECT_EQ(y.lse.at<double>({0, 0, 0}), -std::numeric_limits<double>::infinity());
  EXPECT_NEAR(y.out.at<double>({0, 0, 7, 0}), 1.0, 1e-15);
}

TEST(SparseTransformerAttention, Gradients) {
  constexpr std::int64_t length = 16;
  constexpr double scale = 0.5;
  const auto filled = [](double step) {
    Tensor t(DType::f64, {1, 1, length, 1});
    for (std::int64_t i = 0; i < length; ++i) {
      t.at<double>({0, 0, i, 0}) = std::sin(step * static_cast<double>(i) + step);
    }
    return t;
  };
  const Tensor q = filled(0.7), k = filled(1.3), v = filled(2.1), dy = filled(0.4);
  Options options;
  options.mask = to_mask(local_layout({.window = 8}, length, {.size = 8}));
  options.scale = scale;
  const Attention compiled = compile(options);
  const Forward y = compiled.forward({q, k, v}, {.lse = true});
  const Backward g = compiled.backward({q, k, v}, {y.out, y.lse}, dy);

  const auto at = [](const Tensor& t, std::int64_t i) { return t.at<double>({0, 0, i, 0}); };
  std::vector<double> dq(length), dk(length), dv(length);
  for (std::int64_t i = 0; i < length; ++i) {
    std::vector<double> p(length);
    double sum = 0;
    for (std::int64_t j = std::max<std::int64_t>(0, i - 7); j <= i; ++j) {
      sum += p[static_cast<std::size_t>(j)] = std::exp(scale * at(q, i) * at(k, j));
    }
    double rowsum = 0;
    for (std::int64_t j = 0; j < length; ++j) {
      p[static_cast<std::size_t>(j)] /= sum;
      rowsum += at(dy, i) * at(v, j) * p[static_cast<std::size_t>(j)];
    }
    for (std::int64_t j = 0; j < length; ++j) {
      const auto n = static_cast<std::size_t>(j);
      const double ds = scale * p[n] * (at(dy, i) * at(v, j) - rowsum);
      dv[n] += p[n] * at(dy, i);
      dk[n] += ds * at(q, i);
      dq[static_cast<std::size_t>(i)] += ds * at(k, j);
    }
  }
  for (std::int64_t i = 0; i < length; ++i) {
    const auto n = static_cast<std::size_t>(i);
    EXPECT_NEAR(at(g.dq, i), dq[n], 1e-12);
    EXPECT_NEAR(at(g.dk, i), dk[n], 1e-12);
    EXPECT_NEAR(at(g.dv, i), dv[n], 1e-12);
  }
}

}  // namespace
}  // namespace treadle::patterns
