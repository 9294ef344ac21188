// Views of any strides give what contiguous copies give, in and out.
#include <gtest/gtest.h>

#include "base/copy.h"
#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

// [batch, length, heads, dim] in memory, seen as [batch, heads, length, dim].
View heads_first(Tensor& bshd) {
  const Dims& n = bshd.shape();
  return {bshd.view().data(),
          bshd.dtype(),
          {n[0], n[2], n[1], n[3]},
          {n[1] * n[2] * n[3], n[3], n[2] * n[3], 1}};
}

// The same elements in the opposite order along every axis.
View backwards(Tensor& tensor) {
  View view = tensor.view();
  Dims strides = view.strides();
  for (std::int64_t& stride : strides) stride = -stride;
  auto* last = static_cast<char*>(view.data()) +
               (tensor.count() - 1) * static_cast<std::int64_t>(size_of(tensor.dtype()));
  return {last, tensor.dtype(), tensor.shape(), strides};
}

Tensor gathered(const ConstView& view) { return base::convert(view, view.dtype()); }

Attention causal() {
  Options options;
  options.mask = mods::causal();
  return compile(options);
}

void expect_as_contiguous(const ConstView& q, const ConstView& k, const ConstView& v) {
  const Tensor cq = gathered(q);
  const Tensor ck = gathered(k);
  const Tensor cv = gathered(v);
  const Attention attend = causal();
  const Forward y = attend.forward({q, k, v}, {.lse = true, .max = true});
  const Forward expected = attend.forward({cq, ck, cv}, {.lse = true, .max = true});
  EXPECT_TRUE(same_bits(y.out, expected.out));
  EXPECT_TRUE(same_bits(y.lse, expected.lse));
  const Tensor dout = random_tensor(9, y.out.dtype(), y.out.shape());
  const Backward g = attend.backward({q, k, v}, {y.out, y.lse}, dout);
  const Backward expected_g = attend.backward({cq, ck, cv}, {y.out, y.lse}, dout);
  EXPECT_TRUE(same_bits(g.dq, expected_g.dq));
  EXPECT_TRUE(same_bits(g.dk, expected_g.dk));
  EXPECT_TRUE(same_bits(g.dv, expected_g.dv));
}

TEST(Strides, LengthBeforeHeads) {
  Tensor q = random_tensor(1, DType::f32, {2, 5, 4, 3});
  Tensor k = random_tensor(2, DType::bf16, {2, 6, 2, 3});
  Tensor v = random_tensor(3, DType::f16, {2, 6, 2, 7});
  expect_as_contiguous(heads_first(q), heads_first(k), heads_first(v));
}

TEST(Strides, Backwards) {
  Tensor q = random_tensor(1, DType::f32, {2, 2, 5, 3});
  Tensor k = random_tensor(2, DType::f32, {2, 2, 6, 3});
  Tensor v = random_tensor(3, DType::f64, {2, 2, 6, 7});
  expect_as_contiguous(backwards(q), backwards(k), backwards(v));
}

TEST(Strides, OneKeyForAllBatchesAndHeads) {
  Tensor q = random_tensor(1, DType::f32, {2, 4, 5, 3});
  Tensor k = random_tensor(2, DType::f32, {6, 3});
  const View repeated(k.view().data(), DType::f32, {2, 4, 6, 3}, {0, 0, 3, 1});
  expect_as_contiguous(q, repeated, repeated);
}

TEST(Strides, AllKeysAlike) {
  Tensor q = random_tensor(1, DType::f32, {1, 1, 2, 3});
  Tensor k = random_tensor(2, DType::f32, {3});
  const View repeated(k.view().data(), DType::f32, {1, 1, 1000, 3}, {0, 0, 0, 1});
  const Tensor out = attention({q, repeated, repeated}).out;
  for (std::int64_t d = 0; d < 3; ++d) {
    EXPECT_NEAR(out.at<float>({0, 0, 1, d}), k.at<float>({d}), 1e-4);
  }
}

TEST(Strides, DimThatIsNotInnermost) {
  Tensor q = random_tensor(1, DType::f32, {1, 2, 3, 5});
  const View across(q.view().data(), DType::f32, {1, 2, 5, 3}, {30, 15, 1, 5});
  expect_as_contiguous(across, across, across);
}

TEST(Strides, CapturesToo) {
  const Tensor x = random_tensor(1, DType::f64, {1, 3, 4, 2});
  Tensor bias = random_tensor(2, DType::f64, {4, 3});
  const View flipped = backwards(bias);
  const View swapped(flipped.data(), DType::f64, {3, 4}, {-1, -3});
  const Tensor copy = gathered(swapped);
  const ScoreMod add = [](Score s, Index, Index, Index, Index) { return s; };
  Options options;
  const auto with = [&](const ConstView& view) {
    options.score_mod = [view](Score s, Index, Index h, Index q, Index) { return s + view(h, q); };
    options.gradients = {"c0"};
    const Attention attend = compile(options);
    Forward y = attend.forward({x, x, x}, {.lse = true, .max = true});
    Backward g = attend.backward({x, x, x}, {y.out, y.lse}, x);
    return std::pair(std::move(y), std::move(g));
  };
  const auto [y, g] = with(swapped);
  const auto [expected, expected_g] = with(copy);
  EXPECT_TRUE(same_bits(y.out, expected.out));
  EXPECT_TRUE(same_bits(g.of("c0"), expected_g.of("c0")));
}

TEST(Strides, ForwardIntoTheCallersMemory) {
  const Tensor q = random_tensor(1, DType::f32, {2, 4, 5, 3});
  const Tensor k = random_tensor(2, DType::f32, {2, 2, 6, 3});
  const Tensor v = random_tensor(3, DType::f32, {2, 2, 6, 7});
  const Attention attend = causal();
  const Forward expected = attend.forward({q, k, v}, {.lse = true, .max = true});
  Tensor out(DType::f32, {2, 5, 4, 7});
  Tensor lse(DType::f32, {2, 4, 5});
  Tensor max(DType::f32, {2, 5, 8});
  const View gaps(max.view().data(), DType::f32, {2, 4, 5}, {40, 2, 8});
  attend.forward_into({heads_first(out), backwards(lse), gaps}, {q, k, v});
  EXPECT_TRUE(same_bits(gathered(heads_first(out)), expected.out));
  EXPECT_TRUE(same_bits(gathered(backwards(lse)), expected.lse));
  EXPECT_TRUE(same_bits(gathered(gaps), expected.max));
  EXPECT_EQ(max.at<float>({0, 0, 1}), 0);  // between the elements nothing is written
}

TEST(Strides, ForwardIntoTheQueriesThemselves) {
  Tensor x = random_tensor(1, DType::f32, {1, 2, 5, 3});
  const Tensor expected = attention({x, x, x}).out;
  compile({}).forward_into({x, {}, {}}, {x, x, x});
  EXPECT_TRUE(same_bits(x, expected));
}

TEST(Strides, BackwardIntoTheCallersMemory) {
  const Tensor q = random_tensor(1, DType::f32, {2, 4, 5, 3});
  const Tensor k = random_tensor(2, DType::bf16, {2, 2, 6, 3});
  const Tensor v = random_tensor(3, DType::f32, {2, 2, 6, 7});
  const Tensor slopes = random_tensor(4, DType::f16, {4});
  const Tensor gate = random_tensor(5, DType::f64, {});
  Options options;
  options.score_mod = [a = Capture("slopes", slopes), b = Capture("gate", gate)](
                          Score s, Index, Index h, Index m, Index n) {
    return s * b + a(h) * (n - m);
  };
  options.gradients = {"slopes", "gate"};
  const Attention attend = compile(options);
  const Forward y = attend.forward({q, k, v}, {.lse = true, .max = true});
  const Tensor dout = random_tensor(6, DType::f32, y.out.shape());
  const Backward expected = attend.backward({q, k, v}, {y.out, y.lse}, dout);
  Tensor dq(DType::f32, {2, 5, 4, 3});
  Tensor dk(DType::bf16, {2, 2, 6, 3});
  Tensor dv(DType::f32, {2, 6, 2, 7});
  Tensor dslopes(DType::f16, {4});
  Tensor dgate(DType::f64, {});
  attend.backward_into({heads_first(dq),
                        backwards(dk),
                        heads_first(dv),
                        {{"gate", dgate}, {"slopes", backwards(dslopes)}}},
                       {q, k, v}, {y.out, y.lse}, dout);
  EXPECT_TRUE(same_bits(gathered(heads_first(dq)), expected.dq));
  EXPECT_TRUE(same_bits(gathered(backwards(dk)), expected.dk));
  EXPECT_TRUE(same_bits(gathered(heads_first(dv)), expected.dv));
  EXPECT_TRUE(same_bits(gathered(backwards(dslopes)), expected.of("slopes")));
  EXPECT_TRUE(same_bits(dgate, expected.of("gate")));
}

}  // namespace
}  // namespace treadle
