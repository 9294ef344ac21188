// Where the gradients of captures are summed up.
#pragma once

#include <vector>

#include "backend/cpu/placed.h"
#include "ir/joint.h"
#include "run/backward.h"
#include "treadle/attention.h"

namespace treadle::backend::cpu {

// Sums are contiguous and of the type of the computation: in the result itself where that is so and
// `direct` allows it, else in private memory until they are delivered. Those in private memory
// begin with zeros, the others are cleared when the call runs.
class CaptureSums {
 public:
  CaptureSums(const ir::Joint& joint, const std::vector<CaptureView>& wanted, DType compute,
              bool direct);

  [[nodiscard]] const std::vector<run::CapturedSum>& sums() const { return sums_; }
  // Of the gradients, in elements, contribution after contribution.
  [[nodiscard]] const std::vector<std::int64_t>& strides() const { return strides_; }
  void deliver() const;

 private:
  std::vector<run::CapturedSum> sums_;
  std::vector<std::int64_t> strides_;
  std::vector<PlacedResult> results_;
};

}  // namespace treadle::backend::cpu
