// Memory of the caller's that kernels use as it is, or private memory in its place.
#pragma once

#include <cstddef>

#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle::backend::cpu {

template <class Void>
bool has_contiguous_rows(const BasicView<Void>& view) {
  const int last = view.rank() - 1;
  return last < 0 || view.stride(last) == 1 || view.size(last) <= 1;
}

// Kernels want the elements of a row contiguous; anything else is copied first.
class RowInput {
 public:
  explicit RowInput(const ConstView& given);
  [[nodiscard]] const ConstView& view() const { return view_; }

 private:
  Tensor copy_;
  ConstView view_;
};

// A result, computed in its own place or in private memory until it is delivered.
class PlacedResult {
 public:
  PlacedResult(const View& wanted, bool in_private)
      : PlacedResult(wanted, in_private, wanted.dtype()) {}
  // In memory of another type, which is contiguous and holds zeros.
  PlacedResult(const View& wanted, bool in_private, DType type);

  [[nodiscard]] const View& view() const { return now_; }
  // Needs no memory, so that of several results all are delivered or none.
  void deliver() const;

 private:
  View wanted_, now_;
  Tensor tensor_;
  ConstView computed_;  // of tensor_
};

}  // namespace treadle::backend::cpu
