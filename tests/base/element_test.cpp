#include "base/element.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace treadle::base {
namespace {

constexpr auto least = std::numeric_limits<std::int64_t>::min();
constexpr auto most = std::numeric_limits<std::int64_t>::max();

// Memory for a few elements of any type.
struct Memory {
  alignas(8) std::array<unsigned char, 32> bytes{};

  double put(DType type, double value) {
    store_double(bytes.data(), type, 3, value);
    return load_double(bytes.data(), type, 3);
  }
  std::int64_t put_int(DType type, std::int64_t value) {
    store_int(bytes.data(), type, 3, value);
    return load_int(bytes.data(), type, 3);
  }
};

TEST(Element, SmallNumbersSurviveInEveryType) {
  for (const DType type : all_dtypes) {
    SCOPED_TRACE(std::string(name_of(type)));
    Memory memory;
    EXPECT_EQ(memory.put(type, 1), 1);
    EXPECT_EQ(memory.put_int(type, 1), 1);
    EXPECT_EQ(load_double(memory.bytes.data(), type, 2), 0);  // its neighbour is untouched
    if (type == DType::boolean) continue;
    EXPECT_EQ(memory.put(type, 96), 96);  // 3 * 2^5, which 8-bit floats have too
    EXPECT_EQ(memory.put_int(type, 96), 96);
    EXPECT_EQ(memory.put(type, -3), type == DType::u8 ? 0 : -3);
  }
}

TEST(Element, FloatsToIntegersTruncateAndSaturate) {
  Memory memory;
  EXPECT_EQ(memory.put(DType::i32, 2.9), 2);
  EXPECT_EQ(memory.put(DType::i32, -2.9), -2);
  EXPECT_EQ(memory.put(DType::i8, 1e9), 127);
  EXPECT_EQ(memory.put(DType::i8, -128.9), -128);
  EXPECT_EQ(memory.put(DType::u8, -0.5), 0);
  EXPECT_EQ(memory.put(DType::u8, INFINITY), 255);
  EXPECT_EQ(memory.put(DType::i16, NAN), 0);
  EXPECT_EQ(saturate<std::int64_t>(0x1p63), most);
  EXPECT_EQ(saturate<std::int64_t>(std::nextafter(0x1p63, 0)), most - 1023);
  EXPECT_EQ(saturate<std::int64_t>(-0x1p63), least);
  EXPECT_EQ(saturate<std::int64_t>(-1e300), least);
}

TEST(Element, IntegersSaturateAndAreExactInside) {
  Memory memory;
  EXPECT_EQ(memory.put_int(DType::i64, most), most);
  EXPECT_EQ(memory.put_int(DType::i64, least), least);
  EXPECT_EQ(memory.put_int(DType::i32, most), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(memory.put_int(DType::i16, least), -32768);
  EXPECT_EQ(memory.put_int(DType::u8, 256), 255);
  EXPECT_EQ(memory.put_int(DType::u8, -1), 0);
}

TEST(Element, FloatsReadAsIntegers) {
  const std::array<float, 3> data{-7.75F, NAN, 1e30F};
  EXPECT_EQ(load_int(data.data(), DType::f32, 0), -7);
  EXPECT_EQ(load_int(data.data(), DType::f32, 1), 0);
  EXPECT_EQ(load_int(data.data(), DType::f32, 2), most);
}

TEST(Element, SixteenBitFloatsRoundOnce) {
  Memory memory;
  EXPECT_EQ(memory.put(DType::bf16, 1 + 0x1p-8 + 0x1p-30), 1 + 0x1p-7);
  EXPECT_EQ(memory.put(DType::f16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
  EXPECT_EQ(memory.put(DType::f16, 1e6), INFINITY);
  EXPECT_TRUE(std::isnan(memory.put(DType::f16, NAN)));
  EXPECT_EQ(memory.put(DType::f32, 1e300), INFINITY);
  // 2^62 + 2^38 + 1 lies above the tie between two floats; as a double it would be the tie.
  EXPECT_EQ(memory.put_int(DType::f32, (std::int64_t{1} << 62) + (std::int64_t{1} << 38) + 1),
            (std::int64_t{1} << 62) + (std::int64_t{1} << 39));
}

TEST(Element, EightBitFloatsRoundOnce) {
  Memory memory;
  EXPECT_EQ(memory.put(DType::e4m3, 1 + 0x1p-4 + 0x1p-40), 1 + 0x1p-3);
  EXPECT_EQ(memory.put(DType::e5m2, 1 + 0x1p-3 + 0x1p-40), 1 + 0x1p-2);
  EXPECT_EQ(memory.put(DType::e4m3, -1e6), -448);
  EXPECT_EQ(memory.put(DType::e5m2, -1e6), -INFINITY);
  EXPECT_TRUE(std::isnan(memory.put(DType::e4m3, NAN)));
  EXPECT_TRUE(std::isnan(memory.put(DType::e5m2, NAN)));
  EXPECT_EQ(memory.put_int(DType::e4m3, least), -448);
  EXPECT_EQ(memory.put_int(DType::e5m2, -17), -16);
}

TEST(Element, AnyByteIsABoolean) {
  std::array<unsigned char, 4> bytes{0, 1, 2, 255};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(load_int(bytes.data(), DType::boolean, i), i == 0 ? 0 : 1);
    EXPECT_EQ(load_double(bytes.data(), DType::boolean, i), i == 0 ? 0 : 1);
  }
  store_double(bytes.data(), DType::boolean, 0, 0.25);
  store_double(bytes.data(), DType::boolean, 1, -0.0);
  store_double(bytes.data(), DType::boolean, 2, NAN);
  store_int(bytes.data(), DType::boolean, 3, 256);
  EXPECT_EQ(bytes, (std::array<unsigned char, 4>{1, 0, 1, 1}));
}

TEST(Element, VisitReturnsWhatItsFunctionReturns) {
  int calls = 0;
  int& same = visit_dtype(DType::i8, [&](auto) -> int& { return ++calls; });
  EXPECT_EQ(&same, &calls);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace treadle::base
