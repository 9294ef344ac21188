// The sequences of a call, checked: each is a call of its own to a backend.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "layout/range.h"
#include "treadle/attention.h"
#include "treadle/sequences.h"

namespace treadle::api {

struct CheckedSequences {
  // Rows of one sequence in the packed tensors, and their positions.
  struct One {
    layout::Range query_rows, key_rows;  // of keys in pages: from the sequence's first on
    backend::Sizes sizes;
    backend::Pages pages;  // if keys lie in pages
  };
  std::vector<One> all;
  backend::Sizes sizes;  // what they have in common; `queries` and `keys` count all rows
  bool paged = false;
  ConstView k, v;                               // pools: heads first, whatever was given
  std::optional<ConstView> k_scales, v_scales;  // [pages, key heads, page size]
};

// Throws treadle::Error for what is no good input, before anything is read outside of what was given.
// The views of One::pages are those of the result: it stays where it is.
void check_sequences(std::string_view name, const Sequences& given, const Call& call,
                     CheckedSequences& checked);

// Where the rows of each sequence begin, and where those of the last end: 0 first, `rows` last.
// `of` says what they are.
std::vector<std::int64_t> starts_of(std::string_view call, std::string_view name,
                                    const ConstView& view, std::int64_t rows, std::string_view of);

// A pool as [pages, heads, page size, dim], or its scales as [pages, heads, page size].
template <class Void>
BasicView<Void> heads_first(const BasicView<Void>& pool, PageOrder order) {
  if (order == PageOrder::heads_first) return pool;
  Dims shape = pool.shape(), strides = pool.strides();
  std::swap(shape[1], shape[2]);
  std::swap(strides[1], strides[2]);
  return {pool.data(), pool.dtype(), shape, strides};
}

// Scales of pages or of tokens as [pages, heads, page size]; those of pages repeat.
template <class Void>
BasicView<Void> scales_by_token(const BasicView<Void>& scales, PageOrder order,
                                std::int64_t page_size) {
  if (scales.rank() == 3) return heads_first(scales, order);
  return {scales.data(),
          scales.dtype(),
          {scales.size(0), scales.size(1), page_size},
          {scales.stride(0), scales.stride(1), 0}};
}

// Rows of a packed tensor [rows, heads, dim] or [rows, heads], as [1, heads, rows, dim] or [1, heads,
// rows].
template <class Void>
BasicView<Void> packed_rows(const BasicView<Void>& view, layout::Range rows) {
  using Byte = std::conditional_t<BasicView<Void>::is_const, const std::byte, std::byte>;
  auto* data = static_cast<Byte*>(view.data());
  Dims shape{1, view.size(1), rows.count()}, strides{0, view.stride(1), view.stride(0)};
  if (view.rank() == 3) {
    shape.push_back(view.size(2));
    strides.push_back(view.stride(2));
  }
  if (count_of(shape) > 0)
    data += rows.begin * view.stride(0) * static_cast<std::int64_t>(size_of(view.dtype()));
  return {data, view.dtype(), shape, strides};
}

}  // namespace treadle::api
