#include "base/copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/element.h"
#include "fuzz.h"

namespace treadle::base {
namespace {

using ::testing::ElementsAre;

TEST(Copy, ConvertsEveryPairOfTypes) {
  for (const DType from_type : all_dtypes) {
    Tensor from(from_type, {5});
    for (int i = 0; i < 5; ++i) store_int(from.view().data(), from_type, i, i);
    for (const DType to_type : all_dtypes) {
      SCOPED_TRACE(std::string(name_of(from_type)) + " to " + std::string(name_of(to_type)));
      Tensor to = convert(from, to_type);
      const bool boolean = from_type == DType::boolean || to_type == DType::boolean;
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(load_int(to.view().data(), to_type, i), boolean ? (i == 0 ? 0 : 1) : i);
      }
    }
  }
}

TEST(Copy, IntegersStayExact) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> data{most, most - 1, -most};
  const Tensor same = convert(ConstView(data.data(), {3}), DType::i64);
  EXPECT_THAT(same.data<std::int64_t>(), ElementsAre(most, most - 1, -most));
}

TEST(Copy, FloatsToIntegersSaturate) {
  const std::vector<float> data{NAN, INFINITY, -1e9F, 3.9F};
  const Tensor bytes = convert(ConstView(data.data(), {4}), DType::i8);
  EXPECT_THAT(bytes.data<std::int8_t>(), ElementsAre(0, 127, -128, 3));
}

TEST(Copy, SameTypeKeepsTheBits) {
  const std::vector<std::uint16_t> bits{0x7c01, 0xfe12, 0x8000, 0x0001};  // a signalling NaN first
  std::vector<std::uint16_t> result(4);
  copy(View(result.data(), DType::f16, {4}), ConstView(bits.data(), DType::f16, {4}));
  EXPECT_EQ(result, bits);
}

TEST(Copy, RanksAndSizes) {
  const float one = 1;
  EXPECT_THAT(convert(ConstView(&one, Dims{}), DType::i32).data<std::int32_t>(), ElementsAre(1));
  EXPECT_EQ(convert(ConstView(&one, Dims{3, 0, 2}), DType::f64).count(), 0);
  const Tensor repeated = convert(ConstView(&one, {2, 2}, {0, 0}), DType::f64);
  EXPECT_THAT(repeated.data<double>(), ElementsAre(1, 1, 1, 1));
}

TEST(Copy, RefusesUnequalShapes) {
  Tensor a(DType::f32, {2, 3});
  Tensor b(DType::f32, {3, 2});
  try {
    copy(a, b);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "copy: from shape [3, 2] to shape [2, 3]; they must be equal");
  }
}

// A view of random shape, axis order, direction and gaps, and the memory behind it.
struct Scattered {
  std::vector<float> memory;
  Dims strides;
  std::int64_t origin = 0;

  Scattered(const Dims& shape, std::mt19937_64& random) : strides(shape.size()) {
    std::vector<std::size_t> axes(shape.size());
    for (std::size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = axis;
    std::shuffle(axes.begin(), axes.end(), random);
    std::int64_t extent = 1;
    for (const std::size_t axis : axes) {
      const std::int64_t stride = extent + test::random_int(random, 0, 2);
      const bool backwards = test::random_int(random, 0, 1) == 1;
      strides[axis] = backwards ? -stride : stride;
      if (backwards) origin += stride * (shape[axis] - 1);
      extent += stride * (shape[axis] - 1);
    }
    memory.resize(static_cast<std::size_t>(extent));
  }

  View view(const Dims& shape) { return {memory.data() + origin, shape, strides}; }
};

TEST(Copy, AnyStridesOnBothSides) {
  for (int round = 0; round < test::fuzz_count(400); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    auto random = test::rng(seed);
    Dims shape(static_cast<std::size_t>(test::random_int(random, 0, 5)));
    for (auto& length : shape) length = test::random_int(random, 1, 4);
    Scattered from(shape, random);
    Scattered to(shape, random);
    for (float& x : from.memory) x = static_cast<float>(random() % 1000 + 1);
    copy(to.view(shape), from.view(shape));

    std::int64_t written = 0;
    for (const float x : to.memory) written += x != 0 ? 1 : 0;
    EXPECT_EQ(written, count_of(shape));  // nothing in the gaps
    for (std::int64_t number = 0; number < count_of(shape); ++number) {
      Dims index(shape.size());
      std::int64_t rest = number;
      for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        index[axis] = rest % shape[axis];
        rest /= shape[axis];
      }
      ASSERT_EQ(to.view(shape).at<float>(index), from.view(shape).at<float>(index));
    }
  }
}

}  // namespace
}  // namespace treadle::base
