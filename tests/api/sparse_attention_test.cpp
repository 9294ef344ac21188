// The Sparse Transformer's attention by the original's arguments: each mode against the reference
// backend, in any memory, with and without recomputation; and what equal arguments share.
#include "treadle/sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <thread>

#include "base/kept.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle::sparse_transformer {
namespace {

using test::random_tensor;

constexpr std::int64_t batch = 2, heads = 4, length = 64, dim = 5, value_dim = 3;

struct ModeCase {
  const char* name;
  BlocksparseArguments how;
  const char* visible;  // by the definition

  friend void PrintTo(const ModeCase& c, std::ostream* out) { *out << c.name; }
};

const ModeCase modes[] = {
    {"all", {.heads = heads, .attn_mode = "all", .blocksize = 8}, "q >= kv"},
    {"local",
     {.heads = heads, .attn_mode = "local", .local_attn_ctx = 16, .blocksize = 8},
     "q >= kv && q - kv < 16"},
    {"local_longer_than_all",
     {.heads = heads, .attn_mode = "local", .local_attn_ctx = 128, .blocksize = 32},
     "q >= kv"},
    {"strided",
     {.heads = heads, .attn_mode = "strided", .local_attn_ctx = 8, .blocksize = 8},
     "q >= kv && (q - kv) % 8 == 0"},
    {"strided_by_one",
     {.heads = heads, .attn_mode = "strided", .local_attn_ctx = 1, .blocksize = 8},
     "q >= kv"},
    {"fixed",
     {.heads = heads,
      .attn_mode = "fixed",
      .local_attn_ctx = 16,
      .blocksize = 4,
      .num_verts = 1,
      .vertsize = 2},
     "q >= kv && (kv // 16 == q // 16 || kv % 16 >= 8)"},
    {"fixed_by_head",
     {.heads = heads,
      .attn_mode = "fixed",
      .local_attn_ctx = 16,
      .blocksize = 4,
      .num_verts = 4,
      .vertsize = 1},
     "q >= kv && (kv // 16 == q // 16 || (15 - kv % 16) // 4 == h % 4)"},
    {"fixed_in_whole_blocks",  // 19 keys are four blocks
     {.heads = heads,
      .attn_mode = "fixed",
      .local_attn_ctx = 19,
      .blocksize = 4,
      .num_verts = 2,
      .vertsize = 2},
     "q >= kv && (kv // 16 == q // 16 || (15 - kv % 16) // 8 == h % 2)"},
};

// [batch, time, heads * dim] as [batch, heads, time, dim], copied, in f64.
Tensor split(const ConstView& x) {
  const std::int64_t d = x.size(2) / heads;
  return base::convert(ConstView(x.data(), x.dtype(), {x.size(0), heads, x.size(1), d},
                                 {x.stride(0), d * x.stride(2), x.stride(1), x.stride(2)}),
                       DType::f64);
}

struct Problem {
  Tensor q, k, v, dout;

  explicit Problem(DType type, std::int64_t time = length)
      : q(random_tensor(1, type, {batch, time, heads * dim})),
        k(random_tensor(2, type, {batch, time, heads * dim})),
        v(random_tensor(3, type, {batch, time, heads * value_dim})),
        dout(random_tensor(4, type, {batch, time, heads * value_dim})) {}

  [[nodiscard]] Inputs inputs() const { return {q, k, v}; }
};

struct Results {
  Forward y;
  Backward g;
};

Results run(const SparseAttention& attend, const Problem& p) {
  Forward y = attend.forward(p.inputs(), {.lse = true, .max = true});
  Backward g = attend.backward(p.inputs(), {y.out, y.lse}, p.dout);
  return {std::move(y), std::move(g)};
}

bool same(const Backward& a, const Backward& b) {
  return test::same_bits(a.dq, b.dq) && test::same_bits(a.dk, b.dk) && test::same_bits(a.dv, b.dv);
}

void expect_reference(const Results& seen, const Problem& p, const char* visible,
                      double tolerance) {
  const Tensor q = split(p.q), k = split(p.k), v = split(p.v), dout = split(p.dout);
  const Attention exact = compile({.mask = parse(visible), .backend = Backend::reference});
  const Forward y = exact.forward({q, k, v}, {.lse = true, .max = true});
  const Backward g = exact.backward({q, k, v}, {y.out, y.lse}, dout);
  EXPECT_LT(test::largest_difference(split(seen.y.out), y.out), tolerance);
  EXPECT_LT(test::largest_difference(seen.y.lse, y.lse), tolerance);
  EXPECT_LT(test::largest_difference(seen.y.max, y.max), tolerance);
  EXPECT_LT(test::largest_difference(split(seen.g.dq), g.dq), 8 * tolerance);
  EXPECT_LT(test::largest_difference(split(seen.g.dk), g.dk), 8 * tolerance);
  EXPECT_LT(test::largest_difference(split(seen.g.dv), g.dv), 8 * tolerance);
}

class SparseModes : public testing::TestWithParam<ModeCase> {};

INSTANTIATE_TEST_SUITE_P(Modes, SparseModes, testing::ValuesIn(modes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SparseModes, AreThoseOfTheReference) {
  const SparseAttention attend = blocksparse_attention(GetParam().how);
  for (const auto& [type, tolerance] :
       {std::pair(DType::f32, 2e-5), std::pair(DType::f64, 1e-12), std::pair(DType::bf16, 5e-2)}) {
    const Problem p(type);
    expect_reference(run(attend, p), p, GetParam().visible, tolerance);
  }
}

TEST_P(SparseModes, RecomputedHaveTheSameBits) {
  BlocksparseArguments how = GetParam().how;
  const Problem p(DType::f32);
  const Results kept = run(blocksparse_attention(how), p);
  how.recompute = true;
  const SparseAttention recomputed = blocksparse_attention(how);
  EXPECT_TRUE(test::same_bits(recomputed.forward(p.inputs()).out, kept.y.out));
  EXPECT_TRUE(same(recomputed.backward(p.inputs(), {}, p.dout), kept.g));
}

TEST_P(SparseModes, MaskIsTheMode) {
  const MaskMod mask = blocksparse_attention(GetParam().how).mask();
  const Problem p(DType::f64);
  const Tensor q = split(p.q), k = split(p.k), v = split(p.v);
  EXPECT_LT(test::largest_difference(attention({q, k, v}, {.mask = mask}).out,
                                     attention({q, k, v}, {.mask = parse(GetParam().visible)}).out),
            1e-14);
}

TEST(SparseAttention, WithoutBlocksIsTheSame) {
  const Problem p(DType::f32);
  for (const ModeCase& c : modes) {
    if (c.how.attn_mode == "fixed") continue;
    const Forward blocks = blocksparse_attention(p.inputs(), c.how);
    const Forward dense = attention_impl(
        p.inputs(),
        {.heads = heads, .attn_mode = c.how.attn_mode, .local_attn_ctx = c.how.local_attn_ctx});
    EXPECT_TRUE(test::same_bits(dense.out, blocks.out)) << c.name;
  }
}

TEST(SparseAttention, WithoutBlocksTakesAnyLength) {
  const Problem p(DType::f32, 61);
  expect_reference(
      run(attention_impl({.heads = heads, .attn_mode = "strided", .local_attn_ctx = 7}), p), p,
      "q >= kv && (q - kv) % 7 == 0", 2e-5);
  expect_reference(
      run(attention_impl({.heads = heads, .attn_mode = "local", .local_attn_ctx = 3}), p), p,
      "q >= kv && q - kv < 3", 2e-5);
}

// q, k and v of one tensor, as a projection makes them, and results in another: no copy is needed.
TEST(SparseAttention, PartsOfOneTensor) {
  const Problem p(DType::f32);
  const SparseAttention attend =
      blocksparse_attention({.heads = heads, .attn_mode = "strided", .local_attn_ctx = 2});
  const Results expected = run(attend, p);
  constexpr std::int64_t wide = heads * (2 * dim + value_dim);
  const auto parts = [](Tensor& all) {
    float* data = all.data<float>().data();
    const auto part = [&](std::int64_t first, std::int64_t width) {
      return View(data + first, {batch, length, width}, {length * wide, wide, 1});
    };
    return std::array{part(0, heads * dim), part(heads * dim, heads * dim),
                      part(2 * heads * dim, heads * value_dim)};
  };
  Tensor given(DType::f32, {batch, length, wide}), gradients(DType::f32, {batch, length, wide});
  const auto [q, k, v] = parts(given);
  const auto [dq, dk, dv] = parts(gradients);
  base::copy(q, p.q);
  base::copy(k, p.k);
  base::copy(v, p.v);
  const Forward y = attend.forward({q, k, v}, {.lse = true});
  EXPECT_TRUE(test::same_bits(y.out, expected.y.out));
  attend.backward_into({dq, dk, dv, {}}, {q, k, v}, {y.out, y.lse}, p.dout);
  EXPECT_TRUE(test::same_bits(base::convert(dq, DType::f32), expected.g.dq));
  EXPECT_TRUE(test::same_bits(base::convert(dk, DType::f32), expected.g.dk));
  EXPECT_TRUE(test::same_bits(base::convert(dv, DType::f32), expected.g.dv));
}

// ---- same arguments, same function ----

const Attention* function_of(const BlocksparseArguments& how) {
  return &blocksparse_attention(how).attention();
}

TEST(SparseAttentionShares, WhatArgumentsMean) {
  const BlocksparseArguments fixed = modes[6].how;
  EXPECT_EQ(function_of(fixed), function_of(fixed));
  // Not what they do not need, nor heads and shapes.
  EXPECT_EQ(function_of({.heads = 4}), function_of({.heads = 8, .local_attn_ctx = 5}));
  EXPECT_EQ(function_of({.heads = 4, .attn_mode = "local", .local_attn_ctx = 64}),
            &attention_impl({.heads = 1, .attn_mode = "local", .local_attn_ctx = 64}).attention());
  // Columns in other blocks are the same columns.
  BlocksparseArguments halves = fixed;
  halves.blocksize = 2;
  halves.vertsize = 2;
  EXPECT_EQ(function_of(halves), function_of(fixed));
}

// All neighbours of a configuration, whose digits could be taken for one another's.
TEST(SparseAttentionShares, NothingElse) {
  std::vector<SparseAttention> all;
  for (const bool recompute : {false, true}) {
    all.push_back(blocksparse_attention({.heads = 4, .recompute = recompute}));
    for (const std::int64_t reach : {16, 64, 128}) {
      for (const char* mode : {"local", "strided"}) {
        all.push_back(blocksparse_attention({.heads = 4,
                                             .attn_mode = mode,
                                             .local_attn_ctx = reach,
                                             .blocksize = 16,
                                             .recompute = recompute}));
      }
    }
    for (const auto& [groups, size] : {std::pair(1, 1), {1, 2}, {2, 1}, {2, 2}, {4, 1}}) {
      all.push_back(blocksparse_attention({.heads = 4,
                                           .attn_mode = "fixed",
                                           .local_attn_ctx = 64,
                                           .blocksize = 16,
                                           .num_verts = groups,
                                           .vertsize = size,
                                           .recompute = recompute}));
    }
  }
  std::vector<const Attention*> functions;
  for (const SparseAttention& attend : all) functions.push_back(&attend.attention());
  // Not of std::ranges, whose comparison tries every operator< there is, also those of traced values.
  std::sort(functions.begin(), functions.end());
  EXPECT_EQ(std::adjacent_find(functions.begin(), functions.end()), functions.end());
}

// The original's recomputation took [2, 64, 8], [2, 6, 48] and [26, 4, 8] for the same.
TEST(SparseAttentionShares, ShapesThatReadAlike) {
  const SparseAttention attend =
      attention_impl({.heads = 2, .attn_mode = "local", .local_attn_ctx = 3, .recompute = true});
  for (int again = 0; again < 2; ++again) {
    for (const Dims& shape : {Dims{2, 64, 8}, Dims{2, 6, 48}, Dims{26, 4, 8}}) {
      const Tensor zeros(DType::f32, shape);
      Tensor v(DType::f32, shape);
      for (std::int64_t i = 0; i < v.count(); ++i)
        v.data<float>()[static_cast<std::size_t>(i)] =
            static_cast<float>(i / shape[2] % shape[1]);  // its position
      const Tensor out = attend.forward({zeros, zeros, v}).out;
      for (std::int64_t b = 0; b < shape[0]; ++b)
        for (std::int64_t t = 0; t < shape[1]; ++t)
          EXPECT_NEAR((out.at<float>({b, t, shape[2] - 1})),
                      t < 3 ? static_cast<double>(t) / 2 : static_cast<double>(t) - 1, 1e-6);
    }
  }
}

TEST(SparseAttentionShares, BetweenThreads) {
  std::array<const Attention*, 8> seen{};
  std::vector<SparseAttention> held(seen.size(), blocksparse_attention({.heads = 1}));
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      threads.emplace_back([&, i] {
        held[i] = attention_impl({.heads = 1, .attn_mode = "local", .local_attn_ctx = 4321});
        seen[i] = &held[i].attention();
      });
    }
  }
  for (const Attention* function : seen) EXPECT_EQ(function, seen[0]);
}

TEST(Kept, TheLatest) {
  base::Kept<int, int> kept(2);
  int made = 0;
  const auto get = [&](int key) {
    return kept.get(key, [&] {
      ++made;
      return 10 * key;
    });
  };
  EXPECT_EQ(get(1), 10);
  EXPECT_EQ(get(2), 20);
  EXPECT_EQ(get(1), 10);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(get(3), 30);  // instead of 2, which was not asked for since
  EXPECT_EQ(get(1), 10);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(get(2), 20);
  EXPECT_EQ(made, 4);
  EXPECT_THROW(kept.get(5, []() -> int { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(kept.get(5, [] { return 7; }), 7);
}

}  // namespace
}  // namespace treadle::sparse_transformer
