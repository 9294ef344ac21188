// Rows of a tensor [batch, heads, length, dim], whose last stride is 1, moved by copying kernels.
#pragma once

#include <cstdint>

#include "plan/copy_kernel.h"
#include "run/lazy_kernel.h"
#include "treadle/view.h"

namespace treadle::run {

using CopyKernel = LazyKernel<plan::CopyArgs>;

// Where the rows of a head begin, and how far apart they are, in bytes.
const std::byte* rows_of(const ConstView& view, std::int64_t b, std::int64_t h);
std::int64_t row_bytes(const ConstView& view);

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
        .target = const_cast<std::byte*>(rows_of(to, b, h)),
        .target_stride = row_bytes(to),
        .target_index = index,
        .count = count});
}

}  // namespace treadle::run
