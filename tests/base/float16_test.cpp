// Narrowing is compared with a slow model: among the values of all bit patterns, find the two
// neighbours and compare with the point half way, all of it exact.
#include "base/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "fuzz.h"
#include "treadle/float16.h"

namespace treadle {
namespace {

// 64 bits of mantissa hold every double and every int64 exactly.
using Exact = long double;
static_assert(std::numeric_limits<Exact>::digits >= 64);

struct Format {
  int exponent_bits;
  int mantissa_bits;

  [[nodiscard]] int infinity() const { return ((1 << exponent_bits) - 1) << mantissa_bits; }

  // The value of the bits of a positive finite number. One past the greatest, which is infinity,
  // gets the value it would have if exponents went on.
  [[nodiscard]] Exact decode(int bits) const {
    const int exponent = bits >> mantissa_bits;
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    return std::ldexp(Exact{1} * significand, std::max(exponent, 1) - bias - mantissa_bits);
  }

  [[nodiscard]] std::uint16_t narrow(Exact value) const {
    const Exact magnitude = std::fabs(value);
    int low = 0;
    int high = infinity();
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (decode(middle) <= magnitude ? low : high) = middle;
    }
    const Exact half_way = (decode(low) + decode(high)) / 2;
    const bool up = magnitude > half_way || (magnitude == half_way && low % 2 == 1);
    return static_cast<std::uint16_t>((up ? high : low) | (std::signbit(value) ? 0x8000 : 0));
  }
};

constexpr Format bf16_format{8, 7};
constexpr Format f16_format{5, 10};

void expect_narrows_as_model(double value) {
  ASSERT_EQ(base::bf16_bits(value), bf16_format.narrow(value)) << std::hexfloat << value;
  ASSERT_EQ(base::f16_bits(value), f16_format.narrow(value)) << std::hexfloat << value;
}

void expect_narrows_as_model(float value) {
  ASSERT_EQ(bf16::narrow(value), bf16_format.narrow(value)) << std::hexfloat << value;
  ASSERT_EQ(f16::narrow(value), f16_format.narrow(value)) << std::hexfloat << value;
  ASSERT_NO_FATAL_FAILURE(expect_narrows_as_model(static_cast<double>(value)));
}

template <class T>
T from_bits(int bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

// Widening gives the value, narrowing gives the bits back.
template <class T>
void expect_round_trip(const Format& format, std::uint16_t (*from_double)(double)) {
  const int quiet = 1 << (format.mantissa_bits - 1);
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float wide = from_bits<T>(bits);
    const int magnitude = bits & 0x7fff;
    const bool nan = magnitude > format.infinity();
    ASSERT_EQ(std::isnan(wide), nan) << bits;
    ASSERT_EQ(std::signbit(wide), bits >= 0x8000) << bits;
    ASSERT_EQ(std::isinf(wide), magnitude == format.infinity()) << bits;
    if (magnitude < format.infinity()) {
      ASSERT_EQ(std::fabs(wide), format.decode(magnitude)) << bits;
    }
    const int expected = nan ? bits | quiet : bits;  // a signalling NaN becomes a quiet one
    ASSERT_EQ(T(wide).bits, expected);
    ASSERT_EQ(from_double(wide), expected);
  }
}

TEST(Float16, EveryBf16WidensAndNarrowsBack) {
  expect_round_trip<bf16>(bf16_format, [](double x) { return base::bf16_bits(x); });
}

TEST(Float16, EveryF16WidensAndNarrowsBack) {
  expect_round_trip<f16>(f16_format, [](double x) { return base::f16_bits(x); });
}

TEST(Float16, HeaderExample) {
  EXPECT_EQ(static_cast<float>(bf16(3.14159F)), 3.140625F);
  EXPECT_EQ(static_cast<float>(f16(3.14159F)), 3.140625F);
}

// Exactly half way between all neighbours, and one step to either side, as float and as double.
TEST(Float16, EveryTieAndItsNeighbours) {
  for (const Format& format : {bf16_format, f16_format}) {
    for (int bits = 0; bits < format.infinity(); ++bits) {
      const auto tie = static_cast<double>((format.decode(bits) + format.decode(bits + 1)) / 2);
      for (const double value : {tie, std::nextafter(tie, 0), std::nextafter(tie, INFINITY)}) {
        ASSERT_NO_FATAL_FAILURE(expect_narrows_as_model(value));
        ASSERT_NO_FATAL_FAILURE(expect_narrows_as_model(-value));
      }
      const auto narrow_tie = static_cast<float>(tie);
      if (std::isinf(narrow_tie)) continue;
      for (const float value : {narrow_tie, std::nextafter(narrow_tie, 0.F),
                                std::nextafter(narrow_tie, std::numeric_limits<float>::max())}) {
        ASSERT_NO_FATAL_FAILURE(expect_narrows_as_model(value));
        ASSERT_NO_FATAL_FAILURE(expect_narrows_as_model(-value));
      }
    }
  }
}

TEST(Float16, RandomBitsNarrowAsTheModel) {
  for (int round = 0; round < test::fuzz_count(20); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    auto random = test::rng(seed);
    for (int i = 0; i < 20000; ++i) {
      const std::uint64_t bits = random();
      const auto wide = std::bit_cast<double>(bits);
      const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      if (std::isnan(wide) || std::isnan(value)) continue;
      ASSERT_NO_FATAL_FAILURE(expect_narrows_as_model(wide));
      ASSERT_NO_FATAL_FAILURE(expect_narrows_as_model(value));
      // Doubles of all exponents are mostly out of range; these are not.
      const double near = std::ldexp(test::random_real(random, -2, 2), random() % 48 - 28);
      ASSERT_NO_FATAL_FAILURE(expect_narrows_as_model(near));
    }
  }
}

TEST(Float16, OverflowAndUnderflow) {
  EXPECT_EQ(f16::narrow(65504.F), 0x7bff);
  EXPECT_EQ(f16::narrow(65519.996F), 0x7bff);
  EXPECT_EQ(f16::narrow(65520.F), 0x7c00);  // half way to 2^16: to even, which is infinity
  EXPECT_EQ(f16::narrow(-1e30F), 0xfc00);
  EXPECT_EQ(bf16::narrow(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(base::bf16_bits(-1e300), 0xff80);
  EXPECT_EQ(f16::narrow(0x1p-25F), 0);  // half the least subnormal: to even
  EXPECT_EQ(f16::narrow(std::nextafter(0x1p-25F, 1.F)), 1);
  EXPECT_EQ(f16::narrow(-0x1p-26F), 0x8000);
  EXPECT_EQ(base::bf16_bits(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_EQ(base::bf16_bits(-0.0), 0x8000);
  EXPECT_EQ(bf16::narrow(INFINITY), 0x7f80);
  EXPECT_EQ(base::f16_bits(-INFINITY), 0xfc00);
}

TEST(Float16, NanStaysNan) {
  // A payload in the low bits alone must not vanish and leave infinity.
  const auto low = std::bit_cast<float>(0x7f800001U);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(low))));
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(low))));
  const auto wide = std::bit_cast<double>(std::uint64_t{0xfff0000000000001});
  EXPECT_EQ(base::bf16_bits(wide), 0xffc0);
  EXPECT_EQ(base::f16_bits(wide), 0xfe00);
}

TEST(Float16, DoublesRoundOnce) {
  const double above_tie = 1 + 0x1p-8 + 0x1p-30;
  EXPECT_EQ(bf16::narrow(static_cast<float>(above_tie)), 0x3f80);
  EXPECT_EQ(base::bf16_bits(above_tie), 0x3f81);
  EXPECT_EQ(base::f16_bits(1 + 0x1p-11 + 0x1p-40), 0x3c01);
}

TEST(Float16, IntegersRoundOnce) {
  const std::int64_t tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);
  for (const std::int64_t value : {tie - 1, tie, tie + 1, -tie - 1, -tie, -tie + 1}) {
    EXPECT_EQ(base::bf16_bits(value), bf16_format.narrow(static_cast<Exact>(value))) << value;
  }
  const std::uint64_t seed = test::fuzz_seed(1);
  SCOPED_TRACE(test::seed_text(seed));
  auto random = test::rng(seed);
  for (int i = 0; i < 20000; ++i) {
    const auto value = static_cast<std::int64_t>(random()) >> random() % 64;
    ASSERT_EQ(base::bf16_bits(value), bf16_format.narrow(static_cast<Exact>(value))) << value;
    ASSERT_EQ(base::f16_bits(value), f16_format.narrow(static_cast<Exact>(value))) << value;
  }
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(base::bf16_bits(least), bf16_format.narrow(-0x1p63L));
}

}  // namespace
}  // namespace treadle
