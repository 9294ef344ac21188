// How many kinds of kernels a compiled function keeps.
#include "backend/cpu/kernel_sets.h"

#include <gtest/gtest.h>

#include "api/stages.h"
#include "treadle/attention.h"

namespace treadle::backend::cpu {
namespace {

TEST(KernelSets, KeepTheKindsThatWereAskedForLast) {
  jit::Engine engine({});
  const api::Stages stages = api::stages_of(Options());
  const Forms forms = forms_of(stages.program);
  KernelSets sets(engine, stages.program, forms);
  const auto forward = [&](std::int64_t dim) {
    return sets.forward({.target = plan::host_target(), .dim = dim, .value_dim = dim});
  };
  const auto backward = [&](std::int64_t dim) {
    return sets.backward(
        {.forward = {.target = plan::host_target(), .dim = dim, .value_dim = dim}});
  };
  const std::weak_ptr<const run::ForwardKernels> first = forward(1), second = forward(2);
  const std::weak_ptr<const run::BackwardKernels> first_backward = backward(1);
  for (int dim = 3; dim < 100; ++dim) {
    backward(dim);
    forward(dim);
    EXPECT_EQ(forward(2), second.lock()) << "it is in use";
  }
  EXPECT_TRUE(first.expired());
  EXPECT_TRUE(first_backward.expired());
  EXPECT_NE(forward(1), nullptr);
  EXPECT_EQ(engine.statistics().in_memory, 0) << "nothing was compiled";
}

}  // namespace
}  // namespace treadle::backend::cpu
