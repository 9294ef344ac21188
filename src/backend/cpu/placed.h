// Memory of the caller's that kernels use as it is, or private memory in its place.
#pragma once

#include <cstddef>
#include <memory>

#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle::backend::cpu {

template <class Void>
bool has_contiguous_rows(const BasicView<Void>& view) {
  const int last = view.rank() - 1;
  return last < 0 || view.stride(last) == 1 || view.size(last) <= 1;
}

// Kernels want the elements of a row contiguous; anything else is copied first. What is given outlives
// this: a call of many sequences has many of them.
class RowInput {
 public:
  explicit RowInput(const ConstView& given);
  [[nodiscard]] const ConstView& view() const { return copy_ ? copy_->view : given_; }

 private:
  struct Copy {
    Tensor tensor;
    ConstView view;
  };
  const ConstView& given_;
  std::unique_ptr<const Copy> copy_;
};

// A result, computed in its own place or in private memory until it is delivered. The view outlives
// this.
class PlacedResult {
 public:
  PlacedResult(const View& wanted, bool in_private)
      : PlacedResult(wanted, in_private, wanted.dtype()) {}
  // In memory of another type, which is contiguous and holds zeros.
  PlacedResult(const View& wanted, bool in_private, DType type);

  [[nodiscard]] const View& view() const { return private_ ? private_->view : *wanted_; }
  // Needs no memory, so that of several results all are delivered or none.
  void deliver() const;

 private:
  struct Private {
    Tensor tensor;
    View view;
    ConstView computed;
  };
  const View* wanted_;
  std::unique_ptr<const Private> private_;
};

}  // namespace treadle::backend::cpu
