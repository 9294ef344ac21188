// Ranges of memory, and stand-ins for what kernels cannot use.
#include "backend/cpu/placed.h"

#include <algorithm>

#include "base/copy.h"

namespace treadle::backend::cpu {
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

template MemoryRange memory_of(const View&);
template MemoryRange memory_of(const ConstView&);

RowInput::RowInput(const ConstView& given) : view_(given) {
  if (has_contiguous_rows(given)) return;
  copy_ = base::convert(given, given.dtype());
  view_ = copy_;
}

PlacedResult::PlacedResult(const View& wanted, bool in_private, DType type)
    : wanted_(wanted), now_(wanted) {
  if (!in_private) return;
  tensor_ = Tensor(type, wanted.shape());
  now_ = tensor_;
  computed_ = now_;
}

void PlacedResult::deliver() const {
  if (now_.data() != wanted_.data()) base::copy(wanted_, computed_);
}

}  // namespace treadle::backend::cpu
