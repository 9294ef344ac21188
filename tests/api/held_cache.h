// A paged cache with its memory, for tests.
//
//   Held held({.k = DType::i8, .k_scales = ScaleKind::token}, {.pages = 12});
//   held.cache.append(held.cache.add(), cache_rows(1, 3), cache_rows(2, 3));
//   element(held.k, held.size.order, page, head, token, d)      // what is stored
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/element.h"
#include "cache_model.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle::test {

struct CacheSize {
  std::int64_t pages = 8, sequences = 4, pages_per_sequence = 8;
  PageOrder order = PageOrder::heads_first;
};

// A cache with its memory.
struct Held {
  CacheCase types;
  CacheSize size;
  Tensor k, v, k_scales, v_scales;
  PagedKV cache;

  Held(const CacheCase& c, const CacheSize& s)
      : types(c),
        size(s),
        k(pool(c.k, c.dim)),
        v(pool(c.v, c.value_dim)),
        k_scales(scales(c.k_scales)),
        v_scales(scales(c.v_scales)),
        cache(k, v, options()) {}

  [[nodiscard]] bool tokens_first() const { return size.order == PageOrder::tokens_first; }

  // Bytes that mean nothing, NaN among them.
  [[nodiscard]] Tensor pool(DType type, std::int64_t dim) const {
    Tensor made(type, tokens_first() ? Dims{size.pages, types.page_size, types.heads, dim}
                                     : Dims{size.pages, types.heads, types.page_size, dim});
    std::memset(made.view().data(), 0xff, static_cast<std::size_t>(made.count()) * size_of(type));
    return made;
  }
  [[nodiscard]] Tensor scales(ScaleKind kind) const {
    if (kind == ScaleKind::none) return {};
    if (kind == ScaleKind::given) {
      Tensor made(DType::f32, {size.pages, types.heads});
      for (std::int64_t p = 0; p < size.pages; ++p)
        for (std::int64_t h = 0; h < types.heads; ++h) made.at<float>({p, h}) = given_scale(h);
      return made;
    }
    Dims shape{size.pages, types.heads};
    if (kind == ScaleKind::token)
      shape = tokens_first() ? Dims{size.pages, types.page_size, types.heads}
                             : Dims{size.pages, types.heads, types.page_size};
    Tensor made(DType::f32, shape);
    for (float& x : made.data<float>()) x = std::numeric_limits<float>::quiet_NaN();
    return made;
  }
  [[nodiscard]] PagedKVOptions options() {
    PagedKVOptions made{.sequences = size.sequences,
                        .pages_per_sequence = size.pages_per_sequence,
                        .order = size.order};
    if (types.k_scales != ScaleKind::none) made.k_scales = k_scales;
    if (types.v_scales != ScaleKind::none) made.v_scales = v_scales;
    made.scales_given = types.k_scales == ScaleKind::given || types.v_scales == ScaleKind::given;
    return made;
  }

  // All that an Error must leave as it was.
  struct Snapshot {
    std::string memory;
    std::int64_t sequences, free_pages;
    std::vector<std::vector<std::int32_t>> pages;
    std::vector<std::int64_t> lengths;
    bool operator==(const Snapshot&) const = default;
  };
  [[nodiscard]] Snapshot snapshot(const CacheModel& model) {
    Snapshot made{"", cache.sequences(), cache.free_pages(), {}, {}};
    for (Tensor* tensor : {&k, &v, &k_scales, &v_scales})
      made.memory.append(static_cast<const char*>(tensor->view().data()),
                         static_cast<std::size_t>(tensor->count()) * size_of(tensor->dtype()));
    for (const auto& [slot, tokens] : model.sequences) {
      made.pages.push_back(cache.pages_of(slot));
      made.lengths.push_back(cache.length(slot));
    }
    return made;
  }
};

// An element of a pool or of its scales, found by its axes.
inline double element(const Tensor& pool, PageOrder order, std::int64_t page, std::int64_t head,
                      std::int64_t token, std::int64_t d) {
  const ConstView view = pool;
  if (view.rank() == 2)
    return base::load_double(view.data(), view.dtype(),
                             page * view.stride(0) + head * view.stride(1));
  const bool tokens_first = order == PageOrder::tokens_first;
  return base::load_double(view.data(), view.dtype(),
                           page * view.stride(0) + head * view.stride(tokens_first ? 2 : 1) +
                               token * view.stride(tokens_first ? 1 : 2) +
                               (view.rank() == 4 ? d * view.stride(3) : 0));
}

inline void expect_row(const Tensor& pool, const Tensor& scales, PageOrder order, std::int64_t page,
                       std::int64_t token, const StoredToken::Row& row, std::int64_t heads,
                       std::int64_t dim) {
  std::size_t i = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    if (!row.scales.empty()) {
      ASSERT_EQ(element(scales, order, page, h, token, 0), row.scales[static_cast<std::size_t>(h)])
          << "scale of page " << page << ", head " << h << ", token " << token;
    }
    for (std::int64_t d = 0; d < dim; ++d, ++i) {
      ASSERT_EQ(element(pool, order, page, h, token, d), row.stored[i])
          << "page " << page << ", head " << h << ", token " << token << ", " << d;
    }
  }
}

// [tokens, heads, dim] of a CacheCase.
inline Tensor cache_rows(std::uint64_t seed, std::int64_t tokens) {
  return random_tensor(seed, DType::f32, {tokens, 2, 8});
}

using Pages = std::vector<std::int32_t>;

}  // namespace treadle::test
