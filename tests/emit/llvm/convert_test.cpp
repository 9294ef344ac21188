// Conversions between floats, and from i8, against the library's own, on every target that runs
// here: one value at a time and in vectors.
#include "emit/llvm/convert.h"

#include <gtest/gtest.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/element.h"
#include "fuzz.h"
#include "small_kernel.h"

namespace treadle::test {
namespace {

using emit::llvm::Value;

struct ConvertArgs {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t count = 0;
};

// to[i] = from[i] through the arithmetic's float, `lanes` at a time.
plan::Kernel<ConvertArgs> converter(const plan::Target& target, DType from, DType to,
                                    unsigned lanes) {
  return compile_small<ConvertArgs>(target, DType::f32, [=](auto& kernel) {
    emit::llvm::Builder& build = kernel.build();
    build.loop(build.index(0), kernel.args()[&ConvertArgs::count], lanes, [&](Value* i) {
      llvm::Type* type = emit::llvm::stored_type(build, from);
      llvm::Type* loaded = lanes == 1 ? type : llvm::FixedVectorType::get(type, lanes);
      Value* value = build.load(loaded, build.element(type, kernel.args()[&ConvertArgs::from], i));
      value = emit::llvm::from_stored(build, value, from, to);
      build.store(
          emit::llvm::to_stored(build, value, to),
          build.element(emit::llvm::stored_type(build, to), kernel.args()[&ConvertArgs::to], i));
    });
  });
}

std::uint64_t bits_at(const std::vector<std::byte>& memory, DType type, std::size_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, memory.data() + i * size_of(type), size_of(type));
  return bits;
}

void expect_converted(const plan::Target& target, DType from, DType to,
                      const std::vector<std::byte>& source) {
  const std::size_t count = source.size() / size_of(from);
  std::vector<std::byte> want(count * size_of(to));
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    base::store_double(want.data(), to, at, base::load_double(source.data(), from, at));
  }
  for (const unsigned lanes : {1U, 2U, static_cast<unsigned>(target.lanes(DType::f32))}) {
    std::vector<std::byte> got(want.size());
    ASSERT_EQ(count % lanes, 0U);
    converter(target, from, to, lanes)(
        {.from = source.data(), .to = got.data(), .count = static_cast<std::int64_t>(count)});
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const double value = base::load_double(want.data(), to, at);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(base::load_double(got.data(), to, at)));
        continue;
      }
      ASSERT_EQ(bits_at(got, to, i), bits_at(want, to, i))
          << base::load_double(source.data(), from, at) << " from " << name_of(from) << " to "
          << name_of(to) << ", " << lanes << " lanes";
    }
  }
}

class Convert : public testing::TestWithParam<plan::Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Convert, testing::ValuesIn(every_target()), name_of_target);

TEST_P(Convert, EveryNumberOf16Bits) {
  std::vector<std::uint16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  std::vector<std::byte> source(all.size() * 2);
  std::memcpy(source.data(), all.data(), source.size());
  for (const DType from : {DType::bf16, DType::f16})
    for (const DType to : {DType::f32, DType::f64, DType::bf16, DType::f16})
      expect_converted(GetParam(), from, to, source);
}

std::vector<std::byte> every_byte() {
  std::vector<std::byte> all(256);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i);
  return all;
}

TEST_P(Convert, EveryNumberOf8Bits) {
  for (const DType from : {DType::e4m3, DType::e5m2, DType::i8})
    for (const DType to : {DType::f32, DType::f64, DType::bf16, DType::f16})
      expect_converted(GetParam(), from, to, every_byte());
}

// Callers may have told the processor to take subnormal floats for zeros. Those of 8 and of 16 bits
// are normal as f32.
TEST_P(Convert, SubnormalNumbersAreNotFlushed) {
#ifdef __x86_64__
  constexpr unsigned flush_and_zeros = 0x8040;  // FTZ and DAZ
  std::vector<std::uint16_t> halves(1024);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  std::vector<std::byte> small(2 * halves.size());
  std::memcpy(small.data(), halves.data(), small.size());
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | flush_and_zeros);
  for (const DType from : {DType::e4m3, DType::e5m2})
    expect_converted(GetParam(), from, DType::f32, every_byte());
  expect_converted(GetParam(), DType::f16, DType::f32, small);
  _mm_setcsr(before);
#else
  GTEST_SKIP() << "only x86-64 is told so here";
#endif
}

// Numbers of all sizes; ties of 16-bit types and what lies just beside them, which two roundings
// would get wrong; what is special.
std::vector<double> difficult() {
  std::vector<double> all{0.0, -0.0, 65504, 65519.999, 65520, 3.4e38, 1e300, 1e-300, 0x1p-149};
  auto random = rng(11);
  for (int i = 0; i < 5'000; ++i) {
    const auto power = static_cast<int>(random_int(random, -160, 140));
    all.push_back(std::ldexp(random_real(random, -2, 2), power));
  }
  for (int i = 0; i < 5'000; ++i) {
    const auto bits = static_cast<std::uint16_t>(random_int(random, 0, 0x7bfe));
    for (const DType type : {DType::bf16, DType::f16}) {
      const std::uint16_t pair[]{bits, static_cast<std::uint16_t>(bits + 1)};
      const double low = base::load_double(pair, type, 0), high = base::load_double(pair, type, 1);
      const double tie = (low + high) / 2;
      for (const double x : {tie, std::nextafter(tie, low), std::nextafter(tie, high),
                             tie * (1 + 0x1p-30), tie * (1 - 0x1p-30)})
        all.push_back(i % 2 == 0 ? x : -x);
    }
  }
  all.push_back(std::numeric_limits<double>::infinity());
  all.push_back(-std::numeric_limits<double>::infinity());
  all.push_back(std::numeric_limits<double>::quiet_NaN());
  all.resize((all.size() + 15) / 16 * 16);
  return all;
}

TEST_P(Convert, RoundsWiderNumbersOnce) {
  const std::vector<double> numbers = difficult();
  for (const DType from : {DType::f64, DType::f32}) {
    std::vector<std::byte> source(numbers.size() * size_of(from));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      base::store_double(source.data(), from, static_cast<std::int64_t>(i), numbers[i]);
    for (const DType to : {DType::f64, DType::f32, DType::bf16, DType::f16})
      expect_converted(GetParam(), from, to, source);
  }
}

}  // namespace
}  // namespace treadle::test
