#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_set>
#include <vector>

namespace treadle::base {
namespace {

enum class Colour : std::uint8_t { red = 7 };

// Caches on disk outlive a build: when this value changes, so must the version in their keys.
TEST(Hash, GoldenValue) {
  const Hash hash = Hasher().add("causal").add(64).add(0.125).finish();
  EXPECT_EQ(to_string(hash), "fdae3da2cae5c38d0449ca95cfa1b13d");
}

TEST(Hash, EveryPartCounts) {
  const std::vector<Hash> hashes{
      Hasher().finish(),
      Hasher().add(1).finish(),
      Hasher().add(-1).finish(),
      Hasher().add(1).add(0).finish(),
      Hasher().add(0).add(1).finish(),
      Hasher().add(1.0).finish(),
      Hasher().add(-0.0).finish(),
      Hasher().add(0.0).finish(),
      Hasher().add("ab").add("c").finish(),
      Hasher().add("a").add("bc").finish(),
      Hasher().add("abc").finish(),
  };
  const std::unordered_set<Hash> distinct(hashes.begin(), hashes.end());
  EXPECT_EQ(distinct.size(), hashes.size());
}

TEST(Hash, WidthDoesNotCount) {
  const Hash seven = Hasher().add(7).finish();
  EXPECT_EQ(Hasher().add(std::int8_t{7}).finish(), seven);
  EXPECT_EQ(Hasher().add(7ULL).finish(), seven);
  EXPECT_EQ(Hasher().add(Colour::red).finish(), seven);
  EXPECT_EQ(Hasher().add(-1).finish(), Hasher().add(-1LL).finish());
  EXPECT_EQ(Hasher().add(std::string("x")).finish(), Hasher().add("x").finish());
  EXPECT_EQ(Hasher().add(0.5F).finish(), Hasher().add(0.5).finish());
}

TEST(Hash, GoesOnAfterFinish) {
  Hasher hasher;
  hasher.add(1);
  EXPECT_EQ(hasher.finish(), hasher.finish());
  hasher.add(2);
  EXPECT_EQ(hasher.finish(), Hasher().add(1).add(2).finish());
}

TEST(Hash, OfHashesAndBytes) {
  const Hash part{.high = 1, .low = 2};
  EXPECT_EQ(Hasher().add(part).finish(), Hasher().add(1).add(2).finish());
  EXPECT_EQ(hash_of({}), Hasher().finish());
  const std::uint64_t word = 5;
  EXPECT_EQ(hash_of(std::as_bytes(std::span(&word, 1))), Hasher().add(5).finish());
}

TEST(Hash, Text) {
  EXPECT_EQ(to_string(Hash{.high = 0xab, .low = 1}), "00000000000000ab0000000000000001");
}

}  // namespace
}  // namespace treadle::base
