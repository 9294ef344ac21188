// The bytes between a view's first and last element, to see whether two views may share memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "treadle/view.h"

namespace treadle::base {

struct MemoryRange {
  const std::byte *begin = nullptr, *end = nullptr;

  [[nodiscard]] bool overlaps(const MemoryRange& other) const {
    return begin < other.end && other.begin < end;
  }
};

template <class Void>
MemoryRange memory_of(const BasicView<Void>& view) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.size(axis) == 0) return {};
    const std::int64_t reach = (view.size(axis) - 1) * view.stride(axis);
    low += std::min<std::int64_t>(reach, 0);
    high += std::max<std::int64_t>(reach, 0);
  }
  const auto* data = static_cast<const std::byte*>(view.data());
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  return {data + low * size, data + (high + 1) * size};
}

}  // namespace treadle::base
