// Rows of a tensor [batch, heads, length, dim], whose last stride is 1, moved by copying kernels.
#pragma once

#include <cstdint>

#include "plan/copy_kernel.h"
#include "run/lazy_kernel.h"
#include "treadle/view.h"

namespace treadle::run {

using CopyKernel = LazyKernel<plan::CopyArgs>;

// Where the rows of a head begin, and how far apart they are, in bytes.
// No view is made of another here: that would need memory.
template <class Void>
auto rows_of(const BasicView<Void>& view, std::int64_t b, std::int64_t h) {
  const std::int64_t offset = b * view.stride(0) + h * view.stride(1);
  return static_cast<typename BasicView<Void>::template Element<std::byte>*>(view.data()) +
         offset * static_cast<std::int64_t>(size_of(view.dtype()));
}
template <class Void>
std::int64_t row_bytes(const BasicView<Void>& view) {
  return view.stride(2) * static_cast<std::int64_t>(size_of(view.dtype()));
}

// Whether each row of a head begins where the one before it ends.
inline bool rows_touch(const ConstView& view) {
  return view.stride(2) == view.size(3) || view.size(2) <= 1;
}

// Rows index[0] .. index[count - 1] of a head, one after the other into `to`.
template <class F>
void load_rows(const CopyKernel& copy, const ConstView& from, std::int64_t b, std::int64_t h,
               const std::int32_t* index, std::int64_t count, F* to, std::int64_t to_stride) {
  copy({.source = rows_of(from, b, h),
        .source_stride = row_bytes(from),
        .source_index = index,
        .target = to,
        .target_stride = to_stride * static_cast<std::int64_t>(sizeof(F)),
        .target_index = nullptr,
        .count = count});
}

// And back.
template <class F>
void store_rows(const CopyKernel& copy, const F* from, std::int64_t from_stride, const View& to,
                std::int64_t b, std::int64_t h, const std::int32_t* index, std::int64_t count) {
  copy({.source = from,
        .source_stride = from_stride * static_cast<std::int64_t>(sizeof(F)),
        .source_index = nullptr,
        .target = rows_of(to, b, h),
        .target_stride = row_bytes(to),
        .target_index = index,
        .count = count});
}

// own = row + own, for a row of a result that holds what passes before found.
template <class F>
void add_before(const std::byte* row, F* own, std::int64_t length) {
  const F* before = reinterpret_cast<const F*>(row);
  for (std::int64_t d = 0; d < length; ++d) own[d] = before[d] + own[d];
}

}  // namespace treadle::run
