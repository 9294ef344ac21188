// How random tests are sized and seeded: tests/support/fuzz.h, which all folders use.
#include "fuzz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment.h"

namespace treadle::test {
namespace {

using testing::HasSubstr;

// As in a run that sets nothing, whatever this one has set.
class Fuzz : public testing::Test {
  Environment size_{"TREADLE_TEST_FUZZ", nullptr};
  Environment base_{"TREADLE_TEST_SEED_BASE", nullptr};
  Environment seed_{"TREADLE_TEST_SEED", nullptr};
};

TEST_F(Fuzz, RunsAFifthFromSeedZero) {
  EXPECT_EQ(fuzz_count(1000), 200);
  EXPECT_EQ(fuzz_count(3), 1);
  EXPECT_EQ(fuzz_at_least(900), 90);
  EXPECT_EQ(fuzz_at_least(3), 0);
  EXPECT_EQ(fuzz_seed(17), 17U);
}

TEST_F(Fuzz, Sizes) {
  {
    const Environment full("TREADLE_TEST_FUZZ", "full");
    EXPECT_EQ(fuzz_count(1000), 1000);
    EXPECT_EQ(fuzz_at_least(900), 900);
    EXPECT_FALSE(fuzz_small());
  }
  const Environment small("TREADLE_TEST_FUZZ", "small");
  EXPECT_EQ(fuzz_count(1000), 50);
  EXPECT_EQ(fuzz_at_least(900), 0);
  EXPECT_TRUE(fuzz_small());
}

TEST_F(Fuzz, SeedsBeginAtTheBase) {
  const Environment base("TREADLE_TEST_SEED_BASE", "4000000000");
  EXPECT_EQ(fuzz_seed(0), 4'000'000'000U);
  EXPECT_EQ(fuzz_seed(17), 4'000'000'017U);
}

TEST_F(Fuzz, ASeedIsRepeatedOnce) {
  const Environment base("TREADLE_TEST_SEED_BASE", "1000");
  EXPECT_THAT(
      seed_text(fuzz_seed(17)),
      HasSubstr("repeat with TREADLE_TEST_SEED=1017 and --gtest_filter=Fuzz.ASeedIsRepeated"));
  const Environment seed("TREADLE_TEST_SEED", "1017");
  EXPECT_EQ(fuzz_count(1000), 1);
  EXPECT_EQ(fuzz_seed(0), 1017U);
  EXPECT_EQ(fuzz_at_least(900), 0);
  EXPECT_TRUE(fuzz_repeats());
}

using FuzzDeathTest = Fuzz;

TEST_F(FuzzDeathTest, TheSeedIsPrintedIfTheProgramDies) {
  EXPECT_DEATH(
      {
        (void)seed_text(17);
        std::abort();
      },
      "the last random round was that of TREADLE_TEST_SEED=17 and "
      "--gtest_filter=FuzzDeathTest.TheSeed");
}

}  // namespace
}  // namespace treadle::test
