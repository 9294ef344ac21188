// Sequences as tensors of their own, and the same in one call: packed, or in shuffled pages.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/copy.h"
#include "base/element.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle::test {

struct Lengths {
  std::int64_t queries = 0, keys = 0;
};

// Axes 1 and 2 exchanged.
template <class Void>
BasicView<Void> heads_and_tokens(const BasicView<Void>& view) {
  Dims shape = view.shape(), strides = view.strides();
  std::swap(shape[1], shape[2]);
  std::swap(strides[1], strides[2]);
  return {view.data(), view.dtype(), shape, strides};
}

struct SequenceBatch {
  struct One {
    Tensor q, k, v;  // [1, heads, length, dim]
  };
  std::vector<One> all;
  std::vector<std::int32_t> q_starts{0}, k_starts{0}, lengths;
  Tensor q, k, v;  // packed

  struct Types {
    DType q = DType::f32, k = DType::f32, v = DType::f32;
  };

  SequenceBatch(std::uint64_t seed, const std::vector<Lengths>& sizes, std::int64_t heads,
                std::int64_t key_heads, std::int64_t dim, std::int64_t value_dim,
                const Types& types) {
    for (const Lengths& size : sizes) {
      all.push_back(
          {random_tensor(seed * 100 + all.size() * 3, types.q, {1, heads, size.queries, dim}),
           random_tensor(seed * 100 + all.size() * 3 + 1, types.k, {1, key_heads, size.keys, dim}),
           random_tensor(seed * 100 + all.size() * 3 + 2, types.v,
                         {1, key_heads, size.keys, value_dim})});
      q_starts.push_back(q_starts.back() + static_cast<std::int32_t>(size.queries));
      k_starts.push_back(k_starts.back() + static_cast<std::int32_t>(size.keys));
      lengths.push_back(static_cast<std::int32_t>(size.keys));
    }
    q = Tensor(types.q, {q_starts.back(), heads, dim});
    k = Tensor(types.k, {k_starts.back(), key_heads, dim});
    v = Tensor(types.v, {k_starts.back(), key_heads, value_dim});
    for (std::size_t s = 0; s < all.size(); ++s) {
      pack(q.view(), q_starts, s, all[s].q);
      pack(k.view(), k_starts, s, all[s].k);
      pack(v.view(), k_starts, s, all[s].v);
    }
  }

  // Rows of sequence s in a packed tensor, as [1, heads, rows, dim] or [1, heads, rows].
  template <class Void>
  static BasicView<Void> rows(const BasicView<Void>& packed,
                              const std::vector<std::int32_t>& starts, std::size_t s) {
    using Byte = std::conditional_t<BasicView<Void>::is_const, const std::byte, std::byte>;
    Dims shape{1, packed.size(1), starts[s + 1] - starts[s]},
        strides{1, packed.stride(1), packed.stride(0)};
    if (packed.rank() == 3) {
      shape.push_back(packed.size(2));
      strides.push_back(packed.stride(2));
    }
    auto* data = static_cast<Byte*>(packed.data());
    if (count_of(shape) > 0)
      data += starts[s] * packed.stride(0) * static_cast<std::int64_t>(size_of(packed.dtype()));
    return {data, packed.dtype(), shape, strides};
  }
  static void pack(const View& packed, const std::vector<std::int32_t>& starts, std::size_t s,
                   const Tensor& one) {
    base::copy(rows(packed, starts, s), one);
  }
  // A result of sequence s as a tensor of its own.
  [[nodiscard]] Tensor result(const Tensor& packed, std::size_t s) const {
    return base::convert(rows(ConstView(packed), q_starts, s), packed.dtype());
  }

  [[nodiscard]] ConstView starts(const std::vector<std::int32_t>& of) const {
    return View(const_cast<std::int32_t*>(of.data()), {std::ssize(of)});  // NOLINT
  }
  [[nodiscard]] Sequences packed() const {
    return {q, starts(q_starts), PackedKeys{k, v, starts(k_starts)}};
  }
};

// The keys of a batch in pages, which follow one another in no order.
struct PagedBatch {
  Tensor k, v, table, lengths;
  Tensor k_scales, v_scales;  // of tokens and heads
  PageOrder order = PageOrder::heads_first;

  PagedBatch(const SequenceBatch& batch, std::int64_t page_size, PageOrder how, std::uint64_t seed,
             bool scaled = false)
      : order(how) {
    std::int64_t pages = 3, longest = 1;
    const auto pages_of = [&](std::int64_t length) { return (length + page_size - 1) / page_size; };
    for (const std::int32_t length : batch.lengths) {
      pages += pages_of(length);
      longest = std::max(longest, pages_of(length));
    }
    std::vector<std::int32_t> free(static_cast<std::size_t>(pages));
    std::iota(free.begin(), free.end(), 0);
    std::mt19937_64 random(seed);
    std::ranges::shuffle(free, random);
    const auto pool = [&](const Tensor& like) {
      const std::int64_t heads = like.size(1), dim = like.size(2);
      return random_tensor(seed, like.dtype(),
                           order == PageOrder::heads_first ? Dims{pages, heads, page_size, dim}
                                                           : Dims{pages, page_size, heads, dim});
    };
    k = pool(batch.k);
    v = pool(batch.v);
    table = Tensor(DType::i32, {std::ssize(batch.lengths), longest});
    lengths = Tensor(DType::i64, {std::ssize(batch.lengths)});
    std::ranges::fill(table.data<std::int32_t>(), -7);
    for (std::size_t s = 0; s < batch.all.size(); ++s) {
      lengths.data<std::int64_t>()[s] = batch.lengths[s];
      for (std::int64_t p = 0; p < pages_of(batch.lengths[s]); ++p) {
        const std::int32_t page = free.back();
        free.pop_back();
        table.at<std::int32_t>({static_cast<std::int64_t>(s), p}) = page;
        fill(k, page, batch.all[s].k, p * page_size, page_size);
        fill(v, page, batch.all[s].v, p * page_size, page_size);
      }
    }
    if (!scaled) return;
    const auto scales = [&](const Tensor& like) {
      Dims shape = like.shape();
      shape.pop_back();
      Tensor made = random_tensor(seed + 5, DType::f32, shape);
      for (float& x : made.data<float>()) x = 0.02f + 0.01f * x;
      return made;
    };
    k_scales = scales(k);
    v_scales = scales(v);
  }

  [[nodiscard]] PagedKeys keys() const {
    PagedKeys all{k, v, table, lengths, order, {}, {}};
    if (k_scales.count() > 0) {
      all.k_scales = k_scales;
      all.v_scales = v_scales;
    }
    return all;
  }

  // One page of a pool, or of its scales, as [heads, tokens, ...].
  template <class Void>
  [[nodiscard]] BasicView<Void> page_of(const BasicView<Void>& pool, std::int64_t page,
                                        std::int64_t tokens) const {
    const BasicView<Void> view = order == PageOrder::heads_first ? pool : heads_and_tokens(pool);
    using Byte = std::conditional_t<BasicView<Void>::is_const, const std::byte, std::byte>;
    auto* data = static_cast<Byte*>(view.data()) +
                 page * view.stride(0) * static_cast<std::int64_t>(size_of(view.dtype()));
    Dims shape(view.shape().begin() + 1, view.shape().end());
    Dims strides(view.strides().begin() + 1, view.strides().end());
    shape[1] = tokens;
    return {data, view.dtype(), shape, strides};
  }

 private:
  void fill(Tensor& pool, std::int64_t page, const Tensor& from, std::int64_t first,
            std::int64_t page_size) const {
    const std::int64_t count = std::min(page_size, from.size(2) - first);
    const auto* rows = static_cast<const std::byte*>(ConstView(from).data()) +
                       first * from.size(3) * static_cast<std::int64_t>(size_of(from.dtype()));
    base::copy(page_of(pool.view(), page, count),
               ConstView(rows, from.dtype(), {from.size(1), count, from.size(3)},
                         {from.size(2) * from.size(3), from.size(3), 1}));
  }
};

}  // namespace treadle::test
