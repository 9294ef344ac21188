// Random mods, shapes, strides, types, layouts and threads: near the definition, and the same bits
// however the work was laid out.
#include <gtest/gtest.h>

#include "fuzz_forward.h"

namespace treadle {
namespace {

TEST(ForwardFuzz, AnyModsOnAnyMemory) {
  test::FuzzCount count;
  for (int round = 0; round < test::fuzz_count(88); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::fuzz_forward(seed, {.problems = 4, .layouts = 6}, count);
    if (HasFatalFailure()) return;
  }
  RecordProperty("combinations", static_cast<int>(count.combinations));
  // Rows that see nothing, or whose rounding decides, say little. On average they are a third; of a
  // few rounds they may be all.
  if (test::fuzz_small() || test::fuzz_repeats()) return;
  const test::Compared& compared = count.compared;
  EXPECT_LT(compared.skipped * 5, compared.rows);
  EXPECT_LT((compared.special + compared.skipped) * 5, compared.rows * 4);
}

}  // namespace
}  // namespace treadle
