// Random tests that can be repeated, and that try new cases with every commit.
//
//   for (int round = 0; round < fuzz_count(1000); ++round) {
//     const std::uint64_t seed = fuzz_seed(round);
//     SCOPED_TRACE(seed_text(seed));      // on failure: "repeat with TREADLE_TEST_SEED=17 ..."
//     std::mt19937_64 random = rng(seed);
//     ...                                 // depends on the seed alone, never on the round
//   }
//   EXPECT_GE(compared, fuzz_at_least(900));
//
// How many rounds: a fifth of the number given. TREADLE_TEST_FUZZ=full runs all of them, =small a
// twentieth.
//
// Which seeds: TREADLE_TEST_SEED_BASE + round; without that variable the base is 0. `./dev test`
// takes it from the tree of HEAD, so every commit tries other seeds, and the same commit always the
// same ones. A seed that fails becomes a fixed test.
//
// Once more: TREADLE_TEST_SEED=17 runs the one round of that seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "crash_note.h"

namespace treadle::test {

enum class FuzzSize { full, fifth, small };

inline FuzzSize fuzz_size() {
  const char* set = std::getenv("TREADLE_TEST_FUZZ");
  const std::string_view size = set != nullptr ? set : "";
  if (size == "full") return FuzzSize::full;
  if (size == "small") return FuzzSize::small;
  if (!size.empty())
    ADD_FAILURE() << "TREADLE_TEST_FUZZ=" << size << "; it is full, small or empty";
  return FuzzSize::fifth;
}

inline bool fuzz_small() { return fuzz_size() == FuzzSize::small; }

namespace detail {

inline std::optional<std::uint64_t> number_of(const char* variable) {
  const char* set = std::getenv(variable);
  if (set == nullptr || *set == '\0') return std::nullopt;
  return std::strtoull(set, nullptr, 10);
}

inline std::optional<std::uint64_t> repeated_seed() { return number_of("TREADLE_TEST_SEED"); }

// Of `full`, what the size of this run leaves.
inline int share_of(int full) {
  switch (fuzz_size()) {
    case FuzzSize::full: return full;
    case FuzzSize::fifth: return full / 5;
    case FuzzSize::small: return full / 20;
  }
  return full;
}

}  // namespace detail

// Is this the one round of TREADLE_TEST_SEED?
inline bool fuzz_repeats() { return detail::repeated_seed().has_value(); }

// Rounds to run, at least one.
inline int fuzz_count(int full) { return fuzz_repeats() ? 1 : std::max(detail::share_of(full), 1); }

// How many cases of a kind must have come up, if it is `full` when all rounds run. A fifth of them
// proves less than a fifth of that, and still fewer, or one round that is repeated, prove nothing.
inline int fuzz_at_least(int full) {
  if (fuzz_repeats()) return 0;
  switch (fuzz_size()) {
    case FuzzSize::full: return full;
    case FuzzSize::fifth: return full / 10;
    case FuzzSize::small: return 0;
  }
  return full;
}

inline std::uint64_t fuzz_seed(int round) {
  const std::uint64_t base = detail::number_of("TREADLE_TEST_SEED_BASE").value_or(0);
  return detail::repeated_seed().value_or(base + static_cast<std::uint64_t>(round));
}

// For SCOPED_TRACE. Also what is printed if the program dies in this round.
inline std::string seed_text(std::uint64_t seed) {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string how = "TREADLE_TEST_SEED=" + std::to_string(seed) +
                          " and --gtest_filter=" + test->test_suite_name() + "." + test->name();
  set_crash_note("the last random round was that of " + how);
  return "repeat with " + how;
}

inline std::mt19937_64 rng(std::uint64_t seed) { return std::mt19937_64(seed); }

// Between the two, both included.
inline std::int64_t random_int(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

inline double random_real(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

}  // namespace treadle::test
