// The rows of a page, found through the table.
#include "run/paged_source.h"

#include <atomic>

#include "plan/tile_plan.h"

namespace treadle::run {
namespace {

const float* scales_of(const PagePool& pool, std::int64_t page, std::int64_t key_head) {
  if (pool.scales == nullptr) return nullptr;
  return static_cast<const float*>(pool.scales->data()) + page * pool.scales->stride(0) +
         key_head * pool.scales->stride(1);
}

std::int64_t scale_stride(const PagePool& pool) {
  return pool.scales == nullptr ? 0 : pool.scales->stride(2);
}

}  // namespace

KeyRows PagedSource::rows(std::int64_t, std::int64_t key_head, std::int64_t position) const {
  const std::int64_t number = (position - pages_.first) / pages_.page_size;
  // Read once, whatever others write to it meanwhile.
  auto& written = const_cast<std::int32_t&>(pages_.table[number * pages_.stride]);  // NOLINT
  const std::int32_t entry = std::atomic_ref(written).load(std::memory_order_relaxed);
  const auto page = static_cast<std::int64_t>(std::min<std::uint64_t>(
      static_cast<std::uint32_t>(entry), static_cast<std::uint64_t>(k_.rows.size(0) - 1)));
  const std::int64_t first = pages_.first + number * pages_.page_size;
  return {.begin = first,
          .end = std::min(first + pages_.page_size, positions_.end),
          .keys = rows_of(k_.rows, page, key_head),
          .values = rows_of(v_.rows, page, key_head),
          .key_stride = row_bytes(k_.rows),
          .value_stride = row_bytes(v_.rows),
          .key_scales = scales_of(k_, page, key_head),
          .value_scales = scales_of(v_, page, key_head),
          .key_scale_stride = scale_stride(k_),
          .value_scale_stride = scale_stride(v_)};
}

bool PagedSource::needs_copy(DType compute) const {
  if (pages_.page_size < plan::shortest_in_place) return true;
  return k_.rows.dtype() != compute || v_.rows.dtype() != compute || k_.scales != nullptr ||
         v_.scales != nullptr || !rows_touch(k_.rows) || !rows_touch(v_.rows);
}

}  // namespace treadle::run
