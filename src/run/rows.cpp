// Addresses of rows.
#include "run/rows.h"

namespace treadle::run {

const std::byte* rows_of(const ConstView& view, std::int64_t b, std::int64_t h) {
  const std::int64_t offset = b * view.stride(0) + h * view.stride(1);
  return static_cast<const std::byte*>(view.data()) +
         offset * static_cast<std::int64_t>(size_of(view.dtype()));
}

std::int64_t row_bytes(const ConstView& view) {
  return view.stride(2) * static_cast<std::int64_t>(size_of(view.dtype()));
}

}  // namespace treadle::run
