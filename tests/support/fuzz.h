// Random tests that can be repeated.
//
//   for (int round = 0; round < fuzz_count(1000); ++round) {
//     const std::uint64_t seed = fuzz_seed(round);
//     SCOPED_TRACE(seed_text(seed));      // on failure: "repeat with TREADLE_TEST_SEED=17"
//     std::mt19937_64 random = rng(seed);
//
// TREADLE_TEST_FUZZ=small runs a twentieth. TREADLE_TEST_SEED gives every round that one seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

namespace treadle::test {

inline bool fuzz_small() {
  const char* size = std::getenv("TREADLE_TEST_FUZZ");
  return size != nullptr && std::string_view(size) == "small";
}

inline int fuzz_count(int full) { return fuzz_small() ? std::max(full / 20, 1) : full; }

inline std::uint64_t fuzz_seed(int round) {
  const char* seed = std::getenv("TREADLE_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : static_cast<std::uint64_t>(round);
}

inline std::string seed_text(std::uint64_t seed) {
  return "repeat with TREADLE_TEST_SEED=" + std::to_string(seed);
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
