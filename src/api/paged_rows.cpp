// Checks, copies and writes rows of a pool.
#include "api/paged_rows.h"

#include <algorithm>
#include <cmath>

#include "api/check.h"
#include "api/quantise.h"
#include "api/sequences.h"
#include "base/compute_type.h"
#include "base/copy.h"
#include "base/element.h"
#include "base/error.h"
#include "base/memory_range.h"

namespace treadle::api {
namespace {

using base::fail;

// Tokens of a page of [pages, heads, page size, dim], as [1, heads, tokens, dim], or without dim.
View tokens_of(const View& view, std::int64_t page, std::int64_t first, std::int64_t count) {
  Dims shape = view.shape();
  shape[0] = 1;
  shape[2] = count;
  return {
      static_cast<std::byte*>(view.data()) + (page * view.stride(0) + first * view.stride(2)) *
                                                 static_cast<std::int64_t>(size_of(view.dtype())),
      view.dtype(), shape, view.strides()};
}

// The row of a head in [tokens, heads, dim].
FloatRow row_of(const ConstView& rows, std::int64_t row, std::int64_t head) {
  return {rows.data(), rows.dtype(), row * rows.stride(0) + head * rows.stride(1), rows.stride(2),
          rows.size(2)};
}

bool has_eight_bits(DType type) { return size_of(type) == 1; }

}  // namespace

PagedRows::PagedRows(std::string_view name, const View& pool, PageOrder order, const Scales& scales)
    : name_(name), given_(scales.given) {
  check_pool(order, pool);
  rows_ = heads_first(pool, order);
  if (page_size() < 1 || heads() < 1 || dim() < 1) {
    fail("PagedKV: {}_pool has pages of {} tokens, {} heads, dim {}; all must be at least 1", name_,
         page_size(), heads(), dim());
  }
  check_scales(order, scales);
  if (!scales.scales) return;
  by_page_ = scales.scales->rank() == 2;
  scales_ = scales_by_token(*scales.scales, order, page_size());
}

void PagedRows::check_pool(PageOrder order, const View& pool) const {
  if (pool.rank() != 4) {
    fail("PagedKV: {}_pool has shape {}; it must be {}", name_, to_string(pool.shape()),
         order == PageOrder::heads_first ? "[pages, heads, page size, dim]"
                                         : "[pages, page size, heads, dim]");
  }
  if (!base::holds_keys(pool.dtype())) {
    fail("PagedKV: {}_pool holds {}; it must hold f64, f32, bf16, f16, e4m3, e5m2 or i8", name_,
         name_of(pool.dtype()));
  }
  if (pool.stride(3) != 1 && pool.size(3) > 1) {
    fail("PagedKV: the last stride of {}_pool is {}; that of a pool must be 1", name_,
         pool.stride(3));
  }
  check_result("PagedKV", name_ + "_pool", pool, pool);
}

void PagedRows::check_scales(PageOrder order, const Scales& scales) const {
  const DType type = rows_.dtype();
  if (!scales.scales) {
    if (type == DType::i8)
      fail("PagedKV: {}_pool holds i8, and there are no {}_scales; i8 needs scales", name_, name_);
    return;
  }
  const View& view = *scales.scales;
  if (!has_eight_bits(type)) {
    fail("PagedKV: {}_pool holds {}, and there are {}_scales; only i8, e4m3 and e5m2 have scales",
         name_, name_of(type), name_);
  }
  const Dims by_page{pages(), heads()};
  const Dims by_token = order == PageOrder::heads_first ? Dims{pages(), heads(), page_size()}
                                                        : Dims{pages(), page_size(), heads()};
  if (view.dtype() != DType::f32 || (view.shape() != by_page && view.shape() != by_token)) {
    fail("PagedKV: {}_scales holds {} of shape {}; it must be f32 of shape {} or {}", name_,
         name_of(view.dtype()), to_string(view.shape()), to_string(by_token), to_string(by_page));
  }
  if (scales.given) {
    check_given(view);
  } else {
    check_result("PagedKV", name_ + "_scales", view, view);
  }
}

void PagedRows::check_given(const View& scales) const {
  if (scales.rank() != 2) {
    fail("PagedKV: {}_scales has shape {}; scales that are given must be [{}, {}]", name_,
         to_string(scales.shape()), pages(), heads());
  }
  const auto scale = [&](std::int64_t page, std::int64_t head) {
    return static_cast<const float*>(
        scales.data())[page * scales.stride(0) + head * scales.stride(1)];
  };
  for (std::int64_t page = 0; page < pages(); ++page) {
    for (std::int64_t head = 0; head < heads(); ++head) {
      const float own = scale(page, head);
      if (!std::isnormal(own) || own < 0) {
        fail(
            "PagedKV: {}_scales holds {} for page {}, head {}; scales that are given must be "
            "positive, finite and not subnormal",
            name_, own, page, head);
      }
      if (own != scale(0, head)) {
        fail(
            "PagedKV: {}_scales holds {} for page 0, head {}, and {} for page {}; scales that are "
            "given must be the same for all pages of a head",
            name_, scale(0, head), head, own, page);
      }
    }
  }
}

void PagedRows::check(std::string_view call, const ConstView& rows) const {
  if (!base::holds_gradients(rows.dtype())) {
    fail("{}: {} holds {}; rows must hold f64, f32, bf16 or f16", call, name_,
         name_of(rows.dtype()));
  }
  if (rows.rank() != 3 || rows.size(1) != heads() || rows.size(2) != dim()) {
    fail("{}: {} has shape {}; it must be [tokens, {}, {}]", call, name_, to_string(rows.shape()),
         heads(), dim());
  }
}

bool PagedRows::overlaps(const ConstView& rows) const {
  const base::MemoryRange range = base::memory_of(rows);
  return range.overlaps(base::memory_of(rows_)) ||
         (scales_ && range.overlaps(base::memory_of(*scales_)));
}

void PagedRows::check_values(std::string_view call, const ConstView& rows) const {
  if (!scales_) return;
  for (std::int64_t r = 0; r < rows.size(0); ++r) {
    for (std::int64_t h = 0; h < heads(); ++h) {
      const FloatRow row = row_of(rows, r, h);
      const std::int64_t found = find_nonfinite(row);
      if (found < 0) continue;
      fail("{}: row {} of {}, head {} holds {}; numbers that are quantised must be finite in f32",
           call, r, name_, h,
           base::load_double(row.data, row.dtype, row.offset + found * row.stride));
    }
  }
}

void PagedRows::copy(std::int64_t from_page, std::int64_t to_page, std::int64_t tokens) const {
  base::copy(tokens_of(rows_, to_page, 0, tokens), tokens_of(rows_, from_page, 0, tokens));
  if (scales_ && !given_)
    base::copy(tokens_of(*scales_, to_page, 0, tokens), tokens_of(*scales_, from_page, 0, tokens));
}

void PagedRows::write(std::int64_t page, std::int64_t token, const ConstView& rows,
                      layout::Range which) const {
  if (scales_) return quantise_rows(page, token, rows, which);
  base::copy(tokens_of(rows_, page, token, which.count()), packed_rows(rows, which));
}

void PagedRows::quantise_rows(std::int64_t page, std::int64_t token, const ConstView& rows,
                              layout::Range which) const {
  for (std::int64_t head = 0; head < heads(); ++head) {
    float* scales = static_cast<float*>(scales_->data()) + page * scales_->stride(0) +
                    head * scales_->stride(1);
    if (by_page_ && !given_ && token == 0) {  // the first rows of the page
      double greatest = 0;
      for (std::int64_t r = which.begin; r < which.end; ++r)
        greatest = std::max(greatest, greatest_of(row_of(rows, r, head)));
      scales[0] = scale_for(rows_.dtype(), greatest);
    }
    for (std::int64_t i = 0; i < which.count(); ++i) {
      const FloatRow row = row_of(rows, which.begin + i, head);
      float& scale = scales[(token + i) * scales_->stride(2)];
      if (!by_page_) scale = scale_for(rows_.dtype(), greatest_of(row));
      quantise(rows_.data(), rows_.dtype(),
               page * rows_.stride(0) + head * rows_.stride(1) + (token + i) * rows_.stride(2), row,
               scale);
    }
  }
}

}  // namespace treadle::api
