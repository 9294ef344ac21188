// Random lists of keys, and the same pairs as a table that a mask can read.
//
//   ListedCase c(seed, {.query_block = 16, .key_block = 8});
//   Layout layout = c.attention().layout(c.lists(), c.inputs());
//   c.expect_equivalent(layout);      // forward and backward, against a mask that reads the table
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "fuzz.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle::test {

struct ListedShape {
  std::int64_t batch = 2, heads = 4, key_heads = 2, queries = 70, keys = 90, dim = 8, value_dim = 6;
  std::int64_t query_block = 16, key_block = 8;
  std::int64_t list_batch = 2, list_heads = 4;  // 1, or as many as there are (key) heads
  bool counts = true;                           // lists of different lengths, also empty ones
  DType type = DType::f32;
};

// Of lists and of the equivalent mask: lists may have other tiles than a mask, so sums over queries are
// near and not the same. NaN are at the same places.
inline void expect_alike(const Tensor& of_lists, const Tensor& of_mask) {
  for (std::size_t i = 0; i < of_lists.data<float>().size(); ++i) {
    const float x = of_lists.data<float>()[i], y = of_mask.data<float>()[i];
    EXPECT_EQ(std::isnan(x), std::isnan(y)) << i;
    if (!std::isnan(x)) {
      EXPECT_NEAR(x, y, 1e-5) << i;
    }
  }
}

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class ListedCase {
 public:
  ListedShape s;
  Tensor q, k, v, dout, dlse, bias;
  Tensor indices, list_counts;  // i32
  Tensor listed;                // bool [batch, heads, queries, keys]
  Options options;              // of the listed attention; its mask may be replaced

  ListedCase(std::uint64_t seed, const ListedShape& shape)
      : s(shape),
        q(random_tensor(seed, s.type, {s.batch, s.heads, s.queries, s.dim})),
        k(random_tensor(seed + 1, s.type, {s.batch, s.key_heads, s.keys, s.dim})),
        v(random_tensor(seed + 2, s.type, {s.batch, s.key_heads, s.keys, s.value_dim})),
        dout(random_tensor(seed + 3, s.type, {s.batch, s.heads, s.queries, s.value_dim})),
        dlse(random_tensor(seed + 4, s.type == DType::f64 ? DType::f64 : DType::f32,
                           {s.batch, s.heads, s.queries})),
        bias(random_tensor(seed + 5, DType::f32, {s.heads, s.keys})) {
    choose(seed);
    options.mask = mods::causal_lower_right(s.queries, s.keys);
    options.score_mod = [table = Capture("bias", bias.view())](
                            Score x, Index, Index h, Index, Index kv) { return x + table(h, kv); };
    options.gradients = {"bias"};
  }

  [[nodiscard]] Inputs inputs() const { return {q, k, v}; }
  [[nodiscard]] Attention attention() const { return compile(options); }
  [[nodiscard]] KeyLists lists() const {
    KeyLists lists{s.query_block, s.key_block, indices};
    if (s.counts) lists.counts = ConstView(list_counts);
    return lists;
  }

  // The mask of the options, but only where the table says so; or always where `full` does.
  [[nodiscard]] MaskMod equivalent(const Tensor* full = nullptr) const {
    const Capture table("listed_pairs", listed.view());
    const MaskMod both = options.mask & MaskMod([table](Index b, Index h, Index x, Index kv) {
                           return table(b, h, x, kv);
                         });
    if (full == nullptr) return both;
    const Capture always("full_pairs", full->view());
    return both |
           MaskMod([always](Index b, Index h, Index x, Index kv) { return always(b, h, x, kv); });
  }

  // Forward and backward with the layout against the equivalent mask: near the reference, and the
  // forward bit for bit what the CPU backend makes of that mask: rows do not depend on layouts.
  void expect_equivalent(const Layout& layout, const Tensor* full = nullptr) const {
    Options other = options;
    other.mask = equivalent(full);
    const Both here = run(compile(options), {.layout = layout, .lse = true, .max = true});
    const Forward cpu = compile(other).forward(inputs(), {.lse = true, .max = true});
    EXPECT_TRUE(same_bits(here.y.out, cpu.out));
    EXPECT_TRUE(same_bits(here.y.lse, cpu.lse));
    EXPECT_TRUE(same_bits(here.y.max, cpu.max));
    other.backend = Backend::reference;
    const Both dense = run(compile(other), {.lse = true, .max = true});
    const double tolerance = s.type == DType::f64 ? 1e-6 : 1e-4;  // the bias is f32 in any case
    expect_near(here.y.out, Array(dense.y.out), tolerance);
    expect_near(here.y.lse, Array(dense.y.lse), tolerance);
    expect_near(here.g.dq, Array(dense.g.dq), tolerance);
    expect_near(here.g.dk, Array(dense.g.dk), tolerance);
    expect_near(here.g.dv, Array(dense.g.dv), tolerance);
    expect_near(here.g.of("bias"), Array(dense.g.of("bias")), 1e-3);
  }

 private:
  struct Both {
    Forward y;
    Backward g;
  };
  [[nodiscard]] Both run(const Attention& attend, const Call& call) const {
    Forward y = attend.forward(inputs(), call);
    Backward g = attend.backward(inputs(), {y.out, y.lse}, dout, ConstView(dlse), call);
    return {std::move(y), std::move(g)};
  }

  void choose(std::uint64_t seed) {
    std::mt19937_64 random = rng(seed);
    const std::int64_t rows = ceil_div(s.queries, s.query_block);
    const std::int64_t blocks = ceil_div(s.keys, s.key_block);
    const std::int64_t longest = random_int(random, std::min<std::int64_t>(blocks, 1), blocks);
    indices = Tensor(DType::i32, {s.list_batch, s.list_heads, rows, longest});
    list_counts = Tensor(DType::i32, {s.list_batch, s.list_heads, rows});
    listed = Tensor(DType::boolean, {s.batch, s.heads, s.queries, s.keys});
    std::vector<std::int32_t> all(static_cast<std::size_t>(blocks));
    for (std::int64_t list = 0; list < s.list_batch * s.list_heads * rows; ++list) {
      std::iota(all.begin(), all.end(), 0);
      std::ranges::shuffle(all, random);
      const std::int64_t count = s.counts ? random_int(random, 0, longest) : longest;
      list_counts.data<std::int32_t>()[static_cast<std::size_t>(list)] =
          static_cast<std::int32_t>(count);
      for (std::int64_t i = 0; i < longest; ++i) {
        indices.data<std::int32_t>()[static_cast<std::size_t>(list * longest + i)] =
            i < count ? all[static_cast<std::size_t>(i)] : -7;
        if (i < count) mark(list, rows, all[static_cast<std::size_t>(i)]);
      }
    }
  }

  void mark(std::int64_t list, std::int64_t rows, std::int64_t block) {
    const std::int64_t row = list % rows;
    const std::int64_t head = list / rows % s.list_heads;
    const std::int64_t batch = list / rows / s.list_heads;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      if (s.list_batch > 1 && b != batch) continue;
      for (std::int64_t h = 0; h < s.heads; ++h) {
        if (h * s.list_heads / s.heads != head) continue;
        for (std::int64_t x = row * s.query_block;
             x < std::min((row + 1) * s.query_block, s.queries); ++x) {
          for (std::int64_t kv = block * s.key_block;
               kv < std::min((block + 1) * s.key_block, s.keys); ++kv)
            listed.at<bool>({b, h, x, kv}) = true;
        }
      }
    }
  }
};

}  // namespace treadle::test
