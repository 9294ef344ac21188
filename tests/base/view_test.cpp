#include "treadle/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace treadle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t big = std::int64_t{1} << 62;

// The message of the Error that f throws.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(View, HeaderExample) {
  std::vector<float> data(6);
  const View m(data.data(), {2, 3});
  const View t(data.data(), {3, 2}, {1, 3});
  m.at<float>({1, 2}) = 7;
  EXPECT_EQ(t.at<float>({2, 1}), 7);
  EXPECT_EQ(m.strides(), (Dims{3, 1}));
}

TEST(View, DefaultHasNoElements) {
  const View view;
  EXPECT_EQ(view.count(), 0);
  EXPECT_EQ(view.rank(), 1);
}

TEST(View, ConvertsToConst) {
  std::vector<std::int32_t> data{1, 2, 3};
  const View view(data.data(), {3});
  const ConstView same = view;
  EXPECT_EQ(same.data(), data.data());
  EXPECT_EQ(same.at<std::int32_t>({2}), 3);
  static_assert(!std::is_constructible_v<View, ConstView>);
}

TEST(View, RankZeroIsOneElement) {
  double x = 5;
  const View view(&x, Dims{});
  EXPECT_EQ(view.count(), 1);
  EXPECT_EQ(view.at<double>({}), 5);
}

TEST(View, ZeroAndNegativeStrides) {
  std::vector<std::int64_t> data{1, 2, 3};
  const View backwards(data.data() + 2, {3}, {-1});
  EXPECT_EQ(backwards.at<std::int64_t>({2}), 1);
  const View repeated(data.data(), {1000, 3}, {0, 1});
  EXPECT_EQ(repeated.at<std::int64_t>({999, 1}), 2);
}

TEST(View, CountsAndStrides) {
  EXPECT_EQ(count_of({}), 1);
  EXPECT_EQ(count_of({2, 3, 4}), 24);
  EXPECT_EQ(count_of({big, 4, 0}), 0);
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Dims{});
  EXPECT_EQ(contiguous_strides({0, big, 4}).size(), 3U);
  EXPECT_EQ(to_string(Dims{2, -3}), "[2, -3]");
  EXPECT_EQ(to_string(Dims{}), "[]");
}

TEST(View, RefusesWhatCannotBe) {
  float x = 0;
  EXPECT_THAT(error_of([&] { View(&x, {2, -3}); }), AllOf(HasSubstr("[2, -3]"), HasSubstr("-3")));
  EXPECT_THAT(error_of([&] { View(&x, {2, 3}, {1}); }),
              AllOf(HasSubstr("[2, 3]"), HasSubstr("[1]")));
  EXPECT_THAT(error_of([&] { View(&x, {big, 4}); }), HasSubstr(to_string(Dims{big, 4})));
  EXPECT_THAT(error_of([&] { View(&x, {big}); }), HasSubstr("2^63 bytes"));
  EXPECT_THAT(error_of([&] { View(&x, {3}, {big}); }), HasSubstr("2^63 bytes"));
  EXPECT_THAT(error_of([&] { View(&x, {2, 2}, {big / 4, -big / 4}); }), HasSubstr("2^63 bytes"));
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  EXPECT_THAT(error_of([&] { View(&x, {2}, {least}); }), HasSubstr("2^63 bytes"));
  float* nothing = nullptr;
  EXPECT_THAT(error_of([&] { View(nothing, {2, 3}); }), AllOf(HasSubstr("null"), HasSubstr("6")));
}

TEST(View, AcceptsTheGreatestThatFits) {
  std::int8_t x = 0;
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(View(&x, {most}).count(), most);
  EXPECT_EQ(View(&x, {2, 2}, {big - 1, 1 - big}).count(), 4);
}

TEST(View, NoElementsNeedNoMemory) {
  float* nothing = nullptr;
  EXPECT_EQ(View(nothing, {0, 3}).count(), 0);
  EXPECT_EQ(View(nothing, {3, 0}, {7, 9}).count(), 0);
}

TEST(View, ElementAccessIsChecked) {
  std::vector<float> data(6);
  const View view(data.data(), {2, 3});
  EXPECT_THAT(error_of([&] { (void)view.at<double>({0, 0}); }),
              AllOf(HasSubstr("f32"), HasSubstr("f64")));
  EXPECT_THAT(error_of([&] { (void)view.at<float>({0, 3}); }),
              AllOf(HasSubstr("[0, 3]"), HasSubstr("[2, 3]"), HasSubstr("axis 1")));
  EXPECT_THAT(error_of([&] { (void)view.at<float>({-1, 0}); }), HasSubstr("axis 0"));
  EXPECT_THAT(error_of([&] { (void)view.at<float>({1}); }), HasSubstr("[1]"));
}

}  // namespace
}  // namespace treadle
