// Which pairs are kept: Philox, and statistics of decisions.
#include "base/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "expect_error.h"

namespace treadle {
namespace {

using base::Philox;

// Of kat_vectors of Random123, the authors' own code.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox::bits({0, 0, 0, 0}, {0, 0}),
            (Philox::Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      Philox::bits({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (Philox::Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox::bits({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Philox::Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The definition once more, from bits alone.
TEST(Dropout, DecisionsAreThoseOfPhilox) {
  const Dropout dropout{.probability = 0.3, .seed = 0x123456789abcdef0, .offset = 0xfedcba9876543};
  const auto key = Philox::bits({0xa9876543, 0xfedcb, 0, 0}, {0x9abcdef0, 0x12345678});
  for (const std::int64_t kv : {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 1'000'003}) {
    for (const std::int64_t q : {0, 1, 77}) {
      const auto bits =
          Philox::bits({static_cast<std::uint32_t>(kv / 8), 5, static_cast<std::uint32_t>(q), 2},
                       {key[0], key[1]});
      const auto own = bits[static_cast<std::size_t>(kv % 8 / 2)] >> (kv % 2 * 16) & 0xffff;
      EXPECT_EQ(keeps(dropout, 2, 5, q, kv), own >= 19661) << q << ", " << kv;
    }
  }
}

TEST(Dropout, EndsOfTheRange) {
  for (std::int64_t kv = 0; kv < 1000; ++kv) {
    EXPECT_TRUE(keeps({.probability = 0}, 0, 0, 0, kv));
    EXPECT_FALSE(keeps({.probability = 1}, 0, 0, 0, kv));
  }
  EXPECT_EQ(base::dropout_rule("forward", {}), std::nullopt);
  EXPECT_EQ(base::dropout_rule("forward", {.probability = 1})->scale, 0);
  EXPECT_EQ(base::dropout_rule("forward", {.probability = 0.75})->scale, 4);
}

TEST(Dropout, NoProbability) {
  test::expect_error([] { (void)keeps({.probability = 1.5}, 0, 0, 0, 0); },
                     "keeps: the probability of dropout is 1.5; it must be from 0 to 1");
  test::expect_error([] { (void)keeps({.probability = -0.1}, 0, 0, 0, 0); },
                     "keeps: the probability of dropout is -0.1; it must be from 0 to 1");
  test::expect_error(
      [] { (void)keeps({.probability = std::numeric_limits<double>::quiet_NaN()}, 0, 0, 0, 0); },
      "keeps: the probability of dropout is nan; it must be from 0 to 1");
}

// Pairs and their neighbours along every axis: kept shares, and those where both are kept, lie within
// five standard deviations of independent choices.
TEST(Dropout, NeighboursAreIndependent) {
  constexpr std::int64_t size = 24, keys = 64;
  for (const double p : {0.1, 0.5, 0.9}) {
    const Dropout one{.probability = p, .seed = 3, .offset = 8};
    Dropout later = one, other = one;
    later.offset = 9;
    other.seed = 4;
    double kept = 0, count = 0;
    double both[6] = {};
    for (std::int64_t b = 0; b < 4; ++b) {
      for (std::int64_t h = 0; h < size; ++h) {
        for (std::int64_t q = 0; q < size; ++q) {
          for (std::int64_t kv = 0; kv < keys; ++kv) {
            ++count;
            if (!keeps(one, b, h, q, kv)) continue;
            ++kept;
            both[0] += keeps(one, b + 1, h, q, kv);
            both[1] += keeps(one, b, h + 1, q, kv);
            both[2] += keeps(one, b, h, q + 1, kv);
            both[3] += keeps(one, b, h, q, kv + 1);
            both[4] += keeps(later, b, h, q, kv);
            both[5] += keeps(other, b, h, q, kv);
          }
        }
      }
    }
    const auto near = [&](double seen, double share) {
      EXPECT_NEAR(seen / count, share, 5 * std::sqrt(share * (1 - share) / count)) << p;
    };
    near(kept, 1 - p);
    for (const double seen : both) near(seen, (1 - p) * (1 - p));
  }
}

}  // namespace
}  // namespace treadle
