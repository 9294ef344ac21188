// Random mods, shapes, strides, types, layouts and threads: near the definition, and the same bits
// however the work was laid out.
#include <gtest/gtest.h>

#include "fuzz_forward.h"

namespace treadle {
namespace {

// In four parts, for machines that run tests side by side.
constexpr int parts = 4;
class ForwardFuzz : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Part, ForwardFuzz, testing::Range(0, parts));

TEST_P(ForwardFuzz, AnyModsOnAnyMemory) {
  test::FuzzCount count;
  for (int round = GetParam(); round < test::fuzz_count(88); round += parts) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::fuzz_forward(seed, {.problems = 4, .layouts = 6}, count);
    if (HasFatalFailure()) return;
  }
  RecordProperty("combinations", static_cast<int>(count.combinations));
  if (count.combinations < 200) return;
  // Rows that see nothing, or whose rounding decides, say little.
  EXPECT_LT(count.compared.skipped * 10, count.compared.rows);
  EXPECT_LT(count.compared.special * 2, count.compared.rows);
}

}  // namespace
}  // namespace treadle
