// Rows of a part in memory that calls use again: [batch, heads, rows, length] or [batch, heads, rows], contiguous.
#pragma once

#include <utility>

#include "distributed/buffer.h"
#include "treadle/view.h"

namespace treadle::distributed {

class PackedRows {
 public:
  PackedRows() = default;
  PackedRows(SpareBuffers& spare, DType type, const Dims& shape)
      : memory_(spare.take(count_of(shape) * static_cast<std::int64_t>(size_of(type)))),
        view_(memory_.data(), type, shape) {}

  [[nodiscard]] const View& view() const { return view_; }
  [[nodiscard]] Buffer release() { return std::move(memory_); }

 private:
  Buffer memory_;
  View view_;
};

}  // namespace treadle::distributed
