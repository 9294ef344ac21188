// The complete messages of views, tensors and executors.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <vector>

#include "expect_error.h"
#include "treadle/executor.h"
#include "treadle/tensor.h"
#include "treadle/view.h"

namespace treadle {
namespace {

using test::expect_error;

class ViewErrors : public testing::Test {
 protected:
  std::vector<float> data = std::vector<float>(6);
  View view{data.data(), {2, 3}};
};

TEST_F(ViewErrors, IndexOutside) {
  expect_error([&] { (void)view.at<float>({1, 3}); },
               "view: index [1, 3] is outside of shape [2, 3] on axis 1");
}

TEST_F(ViewErrors, IndexOfAnotherRank) {
  expect_error([&] { (void)view.at<float>({1}); },
               "view: index [1] has 1 axes, shape [2, 3] has 2");
}

TEST_F(ViewErrors, ElementOfAnotherType) {
  expect_error([&] { (void)view.at<double>({0, 0}); },
               "view: the elements are f32, but f64 was requested");
}

TEST_F(ViewErrors, NegativeLength) {
  expect_error([&] { (void)View(data.data(), {2, -3}); },
               "view: shape [2, -3] has the negative length -3");
}

TEST_F(ViewErrors, StridesOfAnotherRank) {
  expect_error([&] { (void)View(data.data(), {2, 3}, {1}); },
               "view: shape [2, 3] has 2 axes, strides [1] have 1");
}

TEST_F(ViewErrors, NoData) {
  expect_error([&] { (void)View(nullptr, DType::f32, {2, 3}); },
               "view: null data for the 6 elements of shape [2, 3]");
}

TEST_F(ViewErrors, DataThatIsNotAligned) {
  char* data_in_between = reinterpret_cast<char*>(data.data()) + 2;
  const auto refuse = [&](DType dtype) {
    expect_error(
        [&] { (void)View(data_in_between, dtype, {2}); },
        fmt::format("view: data {} is not aligned to {} elements of {} bytes",
                    static_cast<const void*>(data_in_between), name_of(dtype), size_of(dtype)));
  };
  for (const DType dtype : {DType::f32, DType::i32, DType::f64, DType::i64}) refuse(dtype);
  for (const DType dtype : {DType::f16, DType::bf16, DType::i16, DType::i8, DType::boolean})
    EXPECT_NO_THROW((void)View(data_in_between, dtype, {2}));
  ++data_in_between;
  for (const DType dtype : {DType::f16, DType::bf16, DType::i16}) refuse(dtype);
  EXPECT_NO_THROW((void)View(data_in_between, DType::u8, {2}));
  EXPECT_NO_THROW((void)View(data_in_between, DType::f64, {0}));  // nothing is read
}

TEST_F(ViewErrors, TooManyElements) {
  const std::int64_t length = std::int64_t{1} << 32;
  expect_error([&] { (void)contiguous_strides({length, length}); },
               "view: shape [4294967296, 4294967296] has more elements than 63 bits can count");
}

TEST_F(ViewErrors, TooManyBytes) {
  const std::int64_t length = std::int64_t{1} << 62;
  expect_error([&] { (void)Tensor(DType::f64, {length}); },
               "tensor: f64 elements of shape [4611686018427387904] take more than 2^63 bytes");
}

TEST_F(ViewErrors, StridesThatReachTooFar) {
  const std::int64_t stride = std::int64_t{1} << 62;
  expect_error(
      [&] { (void)View(data.data(), {2, 3}, {stride, 1}); },
      "view: f32 elements of shape [2, 3] at strides [4611686018427387904, 1] reach further "
      "than 2^63 bytes");
}

TEST_F(ViewErrors, DataOfATensorAsAnotherType) {
  const Tensor tensor(DType::bf16, {2});
  expect_error([&] { (void)tensor.data<f16>(); },
               "view: the elements are bf16, but f16 was requested");
}

TEST_F(ViewErrors, NegativeThreads) {
  expect_error([] { (void)tbb_executor(-1); },
               "tbb_executor: -1 threads; 0 means one per hardware thread");
}

}  // namespace
}  // namespace treadle
