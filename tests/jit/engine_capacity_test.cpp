// Many kernels, of which an engine keeps a few.
#include <gtest/gtest.h>

#include <vector>

#include "jit/engine.h"
#include "mappings.h"
#include "sanitizers.h"
#include "temporary_folder.h"

namespace treadle::jit {
namespace {

constexpr int many = 300;

// A copy of rows of `length` floats.
plan::Kernel<plan::CopyArgs> copy_kernel(Engine& engine, int length) {
  return engine.get(plan::CopySpec{plan::host_target(), DType::f32, DType::f64, length});
}

// ThreadSanitizer makes mappings of its own where code comes and goes.
void expect_mappings(int most) {
  if (test::thread_sanitizer) return;
  EXPECT_LE(test::count_mappings(), most);
}

void expect_copies(const plan::Kernel<plan::CopyArgs>& copy, int length) {
  std::vector<float> from(static_cast<std::size_t>(length));
  for (int i = 0; i < length; ++i) from[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
  std::vector<double> to(from.size());
  copy({.source = from.data(), .target = to.data(), .count = 1});
  for (int i = 0; i < length; ++i) ASSERT_EQ(to[static_cast<std::size_t>(i)], i + 1) << length;
}

TEST(EngineCapacity, ForgetsKernelsAndMakesThemAgain) {
  const test::TemporaryFolder folder;
  Engine engine({.cache_folder = folder.path(), .capacity = 16});
  const plan::Kernel<plan::CopyArgs> held = copy_kernel(engine, 1);
  expect_copies(copy_kernel(engine, 2), 2);  // what is made once per process is there
  const int before = test::count_mappings();
  for (int length = 2; length <= many; ++length) expect_copies(copy_kernel(engine, length), length);
  EXPECT_LE(engine.statistics().in_memory, 18);
  expect_mappings(before + 16);
  expect_copies(held, 1);
  for (int length = 2; length <= many; length += 7) {
    expect_copies(copy_kernel(engine, length), length);
  }
  EXPECT_LE(engine.statistics().in_memory, 18);
  expect_mappings(before + 16);
  EXPECT_EQ(engine.statistics().compiled, many);  // the rest came from disk
}

TEST(EngineCapacity, KernelsShareMappings) {
  Engine engine({});
  std::vector<plan::Kernel<plan::CopyArgs>> kernels{copy_kernel(engine, 1)};
  const int before = test::count_mappings();
  for (int length = 2; length <= many; ++length) kernels.push_back(copy_kernel(engine, length));
  expect_mappings(before + 8);
  // Holes, too, are no mappings of their own.
  for (std::size_t i = 0; i < kernels.size(); i += 2) kernels[i] = {};
  expect_mappings(before + 8);
  for (int length = 2; length <= many; length += 2) {
    expect_copies(kernels[static_cast<std::size_t>(length - 1)], length);
  }
}

}  // namespace
}  // namespace treadle::jit
