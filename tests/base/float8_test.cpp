// Narrowing is compared with a slow model, as that of 16-bit floats is, and with torch's results.
#include "base/float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "fuzz.h"
#include "treadle/float8.h"

namespace treadle {
namespace {

struct SmallFormat {
  int mantissa_bits;
  int greatest;  // the bits of the greatest finite number
  int overflow;  // the bits of what is greater

  // The value of the bits of a positive number, or the one it would have if it were finite.
  [[nodiscard]] double decode(int bits) const {
    const int exponent = bits >> mantissa_bits;
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int bias = (1 << (6 - mantissa_bits)) - 1;
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }

  // By trying all numbers: the nearest one, of two the even one. Differences of doubles that are
  // close to each other are exact.
  [[nodiscard]] int narrow(double value) const {
    const double size = std::fabs(value);
    int best = 0;
    for (int bits = 1; bits <= greatest + 1; ++bits) {
      const double before = size - decode(best), now = std::fabs(size - decode(bits));
      if (now < before || (now == before && bits % 2 == 0)) best = bits;
    }
    return (best > greatest ? overflow : best) | (std::signbit(value) ? 0x80 : 0);
  }
};

constexpr SmallFormat e4m3_format{3, 0x7e, 0x7e};  // without infinity: 448 instead
constexpr SmallFormat e5m2_format{2, 0x7b, 0x7c};

void expect_as_small_model(double value) {
  ASSERT_EQ(base::e4m3_bits(value), e4m3_format.narrow(value)) << std::hexfloat << value;
  ASSERT_EQ(base::e5m2_bits(value), e5m2_format.narrow(value)) << std::hexfloat << value;
  const auto single = static_cast<float>(value);
  ASSERT_EQ(e4m3::narrow(single), e4m3_format.narrow(single)) << std::hexfloat << single;
  ASSERT_EQ(e5m2::narrow(single), e5m2_format.narrow(single)) << std::hexfloat << single;
}

TEST(Float8, EveryE4m3WidensAndNarrowsBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const float wide = e4m3::widen(static_cast<std::uint8_t>(bits));
    const int size = bits & 0x7f;
    EXPECT_EQ(std::isnan(wide), size == 0x7f) << bits;
    EXPECT_EQ(std::signbit(wide), bits >= 0x80) << bits;
    if (size < 0x7f) {
      EXPECT_EQ(std::fabs(wide), e4m3_format.decode(size)) << bits;
    }
    EXPECT_EQ(e4m3(wide).bits, bits);
    EXPECT_EQ(base::e4m3_bits(static_cast<double>(wide)), bits);
  }
}

TEST(Float8, EveryE5m2WidensAndNarrowsBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const float wide = e5m2::widen(static_cast<std::uint8_t>(bits));
    const int size = bits & 0x7f;
    EXPECT_EQ(std::isnan(wide), size > 0x7c) << bits;
    EXPECT_EQ(std::isinf(wide), size == 0x7c) << bits;
    EXPECT_EQ(std::signbit(wide), bits >= 0x80) << bits;
    if (size < 0x7c) {
      EXPECT_EQ(std::fabs(wide), e5m2_format.decode(size)) << bits;
    }
    const int back = size > 0x7c ? bits | 0x7f : bits;  // one NaN for all
    EXPECT_EQ(e5m2(wide).bits, back);
    EXPECT_EQ(base::e5m2_bits(static_cast<double>(wide)), back);
  }
}

// What torch widens its NaNs to.
TEST(Float8, NansHaveTorchsBits) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e4m3::widen(0x7f)), 0x7ff00000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e4m3::widen(0xff)), 0xfff00000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e5m2::widen(0x7d)), 0x7fe00000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(e5m2::widen(0xfe)), 0xffc00000U);
  EXPECT_EQ(e4m3::narrow(std::bit_cast<float>(0x7f800001U)), 0x7f);
  EXPECT_EQ(e5m2::narrow(std::bit_cast<float>(0xff800001U)), 0xff);
}

TEST(Float8, HeaderExample) {
  EXPECT_EQ(static_cast<float>(e4m3(3.14159F)), 3.25F);
  EXPECT_EQ(static_cast<float>(e5m2(3.14159F)), 3.0F);
}

// Exactly half way between all neighbours, and one step to either side, as float and as double.
TEST(Float8, EveryTieAndItsNeighbours) {
  for (const SmallFormat& format : {e4m3_format, e5m2_format}) {
    for (int bits = 0; bits <= format.greatest; ++bits) {
      const double tie = (format.decode(bits) + format.decode(bits + 1)) / 2;
      const auto single = static_cast<float>(tie);
      for (const double value : {tie, std::nextafter(tie, 0), std::nextafter(tie, INFINITY),
                                 static_cast<double>(std::nextafter(single, 0.F)),
                                 static_cast<double>(std::nextafter(single, INFINITY))}) {
        ASSERT_NO_FATAL_FAILURE(expect_as_small_model(value));
        ASSERT_NO_FATAL_FAILURE(expect_as_small_model(-value));
      }
    }
  }
}

TEST(Float8, RandomNumbersNarrowAsTheModel) {
  for (int round = 0; round < test::fuzz_count(20); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    auto random = test::rng(seed);
    for (int i = 0; i < 500; ++i) {
      const auto power = static_cast<int>(test::random_int(random, -20, 18));
      ASSERT_NO_FATAL_FAILURE(
          expect_as_small_model(std::ldexp(test::random_real(random, -2, 2), power)));
    }
  }
}

TEST(Float8, OverflowAndUnderflow) {
  EXPECT_EQ(e4m3::narrow(448.F), 0x7e);
  EXPECT_EQ(e4m3::narrow(464.F), 0x7e);
  EXPECT_EQ(e4m3::narrow(465.F), 0x7e);  // not 480, whose bits are NaN
  EXPECT_EQ(e4m3::narrow(-1e30F), 0xfe);
  EXPECT_EQ(e4m3::narrow(INFINITY), 0x7e);
  EXPECT_EQ(base::e4m3_bits(-1e300), 0xfe);
  EXPECT_EQ(e4m3::narrow(0x1p-10F), 0);  // half the least subnormal: to even
  EXPECT_EQ(e4m3::narrow(-std::nextafter(0x1p-10F, 1.F)), 0x81);
  EXPECT_EQ(e5m2::narrow(57344.F), 0x7b);
  EXPECT_EQ(e5m2::narrow(61439.F), 0x7b);
  EXPECT_EQ(e5m2::narrow(61440.F), 0x7c);  // half way to 2^16: to even, which is infinity
  EXPECT_EQ(e5m2::narrow(-INFINITY), 0xfc);
  EXPECT_EQ(base::e5m2_bits(1e300), 0x7c);
  EXPECT_EQ(e5m2::narrow(0x1p-17F), 0);
  EXPECT_EQ(base::e5m2_bits(-0.0), 0x80);
  EXPECT_EQ(base::e4m3_bits(std::numeric_limits<double>::denorm_min()), 0);
}

TEST(Float8, DoublesAndIntegersRoundOnce) {
  const double above_tie = 1 + 0x1p-4 + 0x1p-40;
  EXPECT_EQ(e4m3::narrow(static_cast<float>(above_tie)), 0x38);
  EXPECT_EQ(base::e4m3_bits(above_tie), 0x39);
  EXPECT_EQ(base::e5m2_bits(1 + 0x1p-3 + 0x1p-40), 0x3d);
  EXPECT_EQ(base::e4m3_bits(std::int64_t{-17}), e4m3_format.narrow(-17));
  EXPECT_EQ(base::e4m3_bits(std::numeric_limits<std::int64_t>::max()), 0x7e);
  EXPECT_EQ(base::e5m2_bits(std::numeric_limits<std::int64_t>::min()), 0xfc);
}

// Floats of all sizes, NaN included. The sums are those of torch 2.13, with x the same floats:
//   (x.to(torch.float8_e4m3fn).view(torch.uint8).long() * (torch.arange(len(x)) % 8191 + 1)).sum()
TEST(Float8, NarrowsAsTorchDoes) {
  std::int64_t e4m3_sum = 0, e5m2_sum = 0, number = 0;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4093, ++number) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    e4m3_sum += e4m3::narrow(value) * (number % 8191 + 1);
    e5m2_sum += e5m2::narrow(value) * (number % 8191 + 1);
  }
  EXPECT_EQ(e4m3_sum, 546871397789);
  EXPECT_EQ(e5m2_sum, 543319884373);
}

}  // namespace
}  // namespace treadle
