// Working memory: kept for the next call, bounded, and given back on request.
#include "treadle/memory.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backend/cpu/process.h"
#include "plain_attention.h"
#include "treadle/attention.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

std::int64_t pooled_bytes() {
  const std::vector<std::size_t> sizes = backend::cpu::process().scratch.sizes();
  return static_cast<std::int64_t>(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
}

TEST(WorkingMemory, IsReleased) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, 300, 16});
  const Attention attend = compile({});
  const Forward y = attend.forward({x, x, x}, {.lse = true});
  const Backward g = attend.backward({x, x, x}, {y.out, y.lse}, x);
  const std::int64_t kept = pooled_bytes();
  EXPECT_GT(kept, 0);
  EXPECT_EQ(release_memory(), kept);
  EXPECT_EQ(pooled_bytes(), 0);
  EXPECT_EQ(release_memory(), 0);
  EXPECT_TRUE(same_bits(attend.forward({x, x, x}).out, y.out));
  EXPECT_TRUE(same_bits(attend.backward({x, x, x}, {y.out, y.lse}, x).dq, g.dq));
}

// One large call among many small ones does not cost memory for ever.
TEST(WorkingMemory, ShrinksAfterALargeCall) {
  const Attention attend = compile({});
  const Call call{.executor = tbb_executor(2)};
  const Tensor small = random_tensor(1, DType::f32, {1, 1, 50, 8});
  const Tensor small_lse(DType::f32, {1, 1, 50});
  const auto train = [&] {
    (void)attend.forward({small, small, small}, call);
    (void)attend.backward({small, small, small}, {small, small_lse}, small, std::nullopt, call);
  };
  release_memory();
  train();
  const std::int64_t before = pooled_bytes();
  {
    const Tensor large = random_tensor(1, DType::f32, {1, 16, 3000, 64});
    const Tensor key = random_tensor(2, DType::f32, {1, 1, 20, 64});
    const Tensor lse(DType::f32, {1, 16, 3000});
    (void)attend.backward({large, key, key}, {large, lse}, large, std::nullopt, call);
  }
  EXPECT_GT(pooled_bytes(), before + 10'000'000);
  for (int i = 0; i < 400; ++i) train();
  EXPECT_LT(pooled_bytes(), 4 * before + 1'000'000);  // what is four times too large may stay
}

}  // namespace
}  // namespace treadle
