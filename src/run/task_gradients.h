// TaskGradients: what one task contributes to the gradients of captures.
//
// A kernel leaves values and offsets for every pair of a block; they are added to the gradient
// itself or, where other tasks add to the same elements, to a sum of the task's own, which is
// delivered at its end and added in the order of tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "run/backward.h"
#include "run/ordered_sums.h"

namespace treadle::run {

template <class F>
class TaskGradients {
 public:
  // `ordered` is BackwardShared::captured.
  TaskGradients(const BackwardKernels& kernels, const std::vector<CapturedSum>& captured,
                const std::vector<std::unique_ptr<OrderedSums<F>>>& ordered)
      : kernels_(kernels), captured_(captured), ordered_(ordered) {}

  // Room for the contributions of a block, and for sums of the task's own.
  void carve(Carver& carver);
  void clear();

  // Tells a kernel where to leave its contributions.
  void set(plan::BackwardKernelArgs& args) const;
  // Adds what a kernel left for so many keys and queries. False if there is a NaN.
  bool add(std::int64_t keys, std::int64_t queries);
  // All of the task's contributions are added.
  void deliver(std::int64_t task);

  // The room for the contributions of a block alone.
  static std::int64_t bytes_of_block(const plan::TilePlan& plan, std::int64_t contributions);

 private:
  [[nodiscard]] std::int64_t stride() const {
    return kernels_.plan.key_block * kernels_.plan.width();
  }

  const BackwardKernels& kernels_;
  const std::vector<CapturedSum>& captured_;
  const std::vector<std::unique_ptr<OrderedSums<F>>>& ordered_;
  F* values_ = nullptr;  // [contributions][key_block][width]
  std::int64_t* offsets_ = nullptr;
  F** sums_ = nullptr;  // by capture: what is added to
};

}  // namespace treadle::run
