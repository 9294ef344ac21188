#include "treadle/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/compute_type.h"
#include "base/element.h"
#include "base/error.h"

namespace treadle {
namespace {

TEST(DType, EveryTypeOnceInTheList) {
  std::set<std::string> names;
  int number = 0;
  for (const DType type : base::all_dtypes) {
    EXPECT_EQ(static_cast<int>(type), number++);
    EXPECT_TRUE(names.emplace(name_of(type)).second) << name_of(type);
  }
  EXPECT_THROW((void)name_of(static_cast<DType>(number)), base::InternalError);
}

TEST(DType, SizesNamesAndKinds) {
  EXPECT_EQ(size_of(DType::f64), 8U);
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(size_of(DType::boolean), 1U);
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_EQ(name_of(DType::boolean), "bool");
  EXPECT_EQ(size_of(DType::e4m3), 1U);
  EXPECT_EQ(name_of(DType::e4m3), "e4m3");
  EXPECT_EQ(name_of(DType::e5m2), "e5m2");
  EXPECT_TRUE(is_float(DType::f16));
  EXPECT_TRUE(is_float(DType::e4m3));
  EXPECT_TRUE(is_float(DType::e5m2));
  EXPECT_FALSE(is_float(DType::i8));
  EXPECT_TRUE(is_integer(DType::u8));
  EXPECT_FALSE(is_integer(DType::boolean));
  EXPECT_FALSE(is_integer(DType::f64));
}

TEST(DType, CppTypesAndBack) {
  static_assert(dtype_of<double> == DType::f64);
  static_assert(dtype_of<long> == DType::i64);
  static_assert(dtype_of<long long> == DType::i64);
  for (const DType type : base::all_dtypes) {
    base::visit_dtype(type, [&](auto tag) {
      EXPECT_EQ(dtype_of<typename decltype(tag)::type>, type);
      EXPECT_EQ(sizeof(typename decltype(tag)::type), size_of(type));
    });
  }
}

TEST(DType, AttentionIsComputedInTheWidestOfTwoTypes) {
  static_assert(base::compute_type(DType::f32, DType::f32, DType::f32) == DType::f32);
  static_assert(base::compute_type(DType::bf16, DType::f16, DType::bf16) == DType::f32);
  EXPECT_EQ(base::compute_type(DType::f64, DType::f16, DType::f32), DType::f64);
  EXPECT_EQ(base::compute_type(DType::f16, DType::f64, DType::f32), DType::f64);
  EXPECT_EQ(base::compute_type(DType::f16, DType::f32, DType::f64), DType::f64);
  EXPECT_EQ(base::compute_type(DType::f32, DType::e4m3, DType::i8), DType::f32);
  EXPECT_EQ(base::compute_type(DType::f64, DType::e5m2, DType::e5m2), DType::f64);
}

TEST(DType, KeysMayBeNarrowerThanGradients) {
  for (const DType type : base::all_dtypes) {
    const bool eight_bits = type == DType::e4m3 || type == DType::e5m2 || type == DType::i8;
    EXPECT_EQ(base::holds_keys(type), is_float(type) || type == DType::i8) << name_of(type);
    EXPECT_EQ(base::holds_gradients(type), base::holds_keys(type) && !eight_bits) << name_of(type);
  }
}

}  // namespace
}  // namespace treadle
