// The memory of a call: what of the caller's can be used as it is, and what stands in for the rest.
#pragma once

#include <cstdint>
#include <vector>

#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle::api {

bool overlaps(const ConstView& a, const ConstView& b);
bool has_unit_rows(const ConstView& view);  // the elements of a row are side by side

// Kernels want the elements of a row side by side; anything else is copied first.
class Rows {
 public:
  explicit Rows(const ConstView& given);
  [[nodiscard]] const ConstView& view() const { return view_; }

 private:
  Tensor copy_;
  ConstView view_;
};

// A result, worked out in its own place or, `aside`, in memory of ours until it is delivered.
class Result {
 public:
  Result(const View& wanted, bool aside);
  [[nodiscard]] const View& view() const { return now_; }
  void deliver() const;

 private:
  View wanted_, now_;
  Tensor tensor_;
};

// Address, shape and strides of each, as kernels read them.
std::vector<std::int64_t> words_of(const std::vector<ConstView>& memory);

}  // namespace treadle::api
