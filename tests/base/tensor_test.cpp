#include "treadle/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/element.h"

namespace treadle {
namespace {

static_assert(!std::is_copy_constructible_v<Tensor> && !std::is_copy_assignable_v<Tensor>);
static_assert(std::is_nothrow_move_constructible_v<Tensor>);
static_assert(std::is_convertible_v<Tensor&, View> && std::is_convertible_v<Tensor&, ConstView>);
static_assert(std::is_convertible_v<const Tensor&, ConstView>);
static_assert(!std::is_convertible_v<const Tensor&, View> && !std::is_convertible_v<Tensor, View>);

std::int64_t count_through_view(const ConstView& view) { return view.count(); }

TEST(Tensor, IsZeroAlignedAndContiguous) {
  for (const DType type : base::all_dtypes) {
    Tensor tensor(type, {3, 5, 7});
    const View view = tensor;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data()) % 64, 0U);
    EXPECT_EQ(view.strides(), (Dims{35, 7, 1}));
    const auto* bytes = static_cast<const unsigned char*>(view.data());
    EXPECT_TRUE(std::all_of(bytes, bytes + 105 * size_of(type), [](auto b) { return b == 0; }));
  }
}

TEST(Tensor, ForwardsToItsView) {
  const Tensor tensor(DType::bf16, {2, 3});
  EXPECT_EQ(tensor.dtype(), DType::bf16);
  EXPECT_EQ(tensor.shape(), (Dims{2, 3}));
  EXPECT_EQ(tensor.rank(), 2);
  EXPECT_EQ(tensor.size(1), 3);
  EXPECT_EQ(tensor.count(), 6);
  EXPECT_EQ(count_through_view(tensor), 6);
  EXPECT_EQ(count_through_view(Tensor(DType::f32, {4})), 4);
}

TEST(Tensor, SpansCheckTheType) {
  Tensor tensor(DType::f32, {2, 2});
  tensor.data<float>()[3] = 5;
  EXPECT_EQ(tensor.at<float>({1, 1}), 5);
  tensor.at<float>({0, 1}) = 6;
  const Tensor& same = tensor;
  EXPECT_EQ(same.data<float>()[1], 6);
  EXPECT_EQ(same.at<float>({0, 1}), 6);
  EXPECT_THROW((void)tensor.data<double>(), Error);
  EXPECT_THROW((void)same.at<std::int32_t>({0, 0}), Error);
}

TEST(Tensor, CloneIsDeep) {
  Tensor tensor(DType::i64, {3});
  tensor.data<std::int64_t>()[1] = 7;
  const Tensor copy = tensor.clone();
  tensor.data<std::int64_t>()[1] = 8;
  EXPECT_EQ(copy.data<std::int64_t>()[1], 7);
  EXPECT_NE(copy.view().data(), tensor.view().data());
}

TEST(Tensor, MovesKeepTheMemoryAndEmptyTheSource) {
  Tensor tensor(DType::u8, {4});
  const View view = tensor.view();
  Tensor moved = std::move(tensor);
  EXPECT_EQ(moved.view().data(), view.data());
  EXPECT_EQ(tensor.count(), 0);  // NOLINT: what is promised after a move
  tensor = std::move(moved);
  EXPECT_EQ(tensor.view().data(), view.data());
  EXPECT_EQ(moved.clone().count(), 0);  // NOLINT
}

TEST(Tensor, SizesFromNothingToTooMuch) {
  EXPECT_EQ(Tensor().count(), 0);
  Tensor none(DType::f64, {0, 3});
  EXPECT_TRUE(none.data<double>().empty());
  EXPECT_EQ(none.clone().shape(), (Dims{0, 3}));
  EXPECT_EQ(Tensor(DType::f64, {}).data<double>().size(), 1U);
  EXPECT_THROW(Tensor(DType::f64, {2, -1}), Error);
  EXPECT_THROW(Tensor(DType::f64, {std::int64_t{1} << 61}), Error);
}

}  // namespace
}  // namespace treadle
