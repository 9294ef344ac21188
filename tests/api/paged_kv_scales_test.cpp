// What a paged cache quantises, and the scales that it finds or is given.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "held_cache.h"
#include "treadle/paged_kv.h"

namespace treadle {
namespace {

using test::cache_rows;
using test::element;
using test::Held;
using test::Pages;
using test::ScaleKind;

class QuantisedCache : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Of, QuantisedCache, testing::Values(DType::i8, DType::e4m3, DType::e5m2),
                         testing::PrintToStringParamName());

// Half the distance of two neighbours in the pool at this place, in steps of the scale.
double half_step(DType type, double stored) {
  if (type == DType::i8) return 0.5;
  const int mantissa = type == DType::e4m3 ? 3 : 2, least = type == DType::e4m3 ? -6 : -14;
  const int exponent = stored == 0 ? least : std::max(std::ilogb(stored), least);
  return std::ldexp(0.5, exponent - mantissa);
}

TEST_P(QuantisedCache, IsWithinHalfAStep) {
  for (const ScaleKind kind : {ScaleKind::token, ScaleKind::page}) {
    Held held({.k = GetParam(), .v = GetParam(), .k_scales = kind, .v_scales = kind}, {});
    const Tensor k = cache_rows(1, 30), v = cache_rows(2, 30);
    const std::int64_t slot = held.cache.add();
    held.cache.append(slot, k, v);
    for (std::int64_t t = 0; t < 30; ++t) {
      const std::int32_t page = held.cache.pages_of(slot)[static_cast<std::size_t>(t / 4)];
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 8; ++d) {
          const double stored = element(held.k, held.size.order, page, h, t % 4, d);
          const double scale = element(held.k_scales, held.size.order, page, h, t % 4, 0);
          ASSERT_NEAR(stored * scale, k.at<float>({t, h, d}),
                      half_step(GetParam(), stored) * scale * (1 + 1e-5));
        }
      }
    }
  }
}

TEST_P(QuantisedCache, HasScalesThatAreNeverZeroNorInfinite) {
  using Limits = std::numeric_limits<float>;
  for (const ScaleKind kind : {ScaleKind::token, ScaleKind::page}) {
    Held held({.k = GetParam(), .v = GetParam(), .k_scales = kind, .v_scales = kind}, {});
    const double most = test::most_stored(GetParam());
    const auto scale_of = [&](float greatest) {
      Tensor k(DType::f32, {1, 2, 8});
      k.at<float>({0, 0, 3}) = -greatest;
      const std::int64_t slot = held.cache.add();
      held.cache.append(slot, k, k);
      const std::int32_t page = held.cache.pages_of(slot).front();
      const auto scale = static_cast<float>(element(held.k_scales, held.size.order, page, 0, 0, 0));
      const auto stored = static_cast<float>(element(held.k, held.size.order, page, 0, 0, 3));
      held.cache.free(slot);
      return std::pair(scale, stored * scale);
    };
    EXPECT_EQ(scale_of(0), std::pair(1.0f, 0.0f));
    EXPECT_EQ(scale_of(Limits::denorm_min()).first, Limits::min());
    EXPECT_EQ(scale_of(Limits::min()).first, Limits::min());
    const auto [scale, largest] = scale_of(Limits::max());
    EXPECT_TRUE(std::isnormal(scale));
    EXPECT_TRUE(std::isfinite(largest));
    EXPECT_NEAR(largest, -Limits::max(), 1e-6 * Limits::max());
    EXPECT_EQ(scale_of(static_cast<float>(most)), std::pair(1.0f, static_cast<float>(-most)));
  }
}

TEST_P(QuantisedCache, SaturatesWhatComesLaterIntoAPage) {
  Held held(
      {.k = GetParam(), .v = GetParam(), .k_scales = ScaleKind::page, .v_scales = ScaleKind::token},
      {});
  Tensor small(DType::f32, {1, 2, 8}), large(DType::f32, {1, 2, 8});
  const auto most = static_cast<float>(test::most_stored(GetParam()));
  std::ranges::fill(small.data<float>(), most);
  std::ranges::fill(large.data<float>(), -3 * most);
  const std::int64_t slot = held.cache.add();
  held.cache.append(slot, small, small);
  held.cache.append(slot, large, large);
  EXPECT_EQ(element(held.k_scales, held.size.order, 0, 1, 0, 0), 1);
  EXPECT_EQ(element(held.k, held.size.order, 0, 1, 0, 0), most);
  EXPECT_EQ(element(held.k, held.size.order, 0, 1, 1, 0), -most);
  EXPECT_EQ(element(held.v_scales, held.size.order, 0, 1, 1, 0), 3);
  // The page that it is copied into has its scale.
  const std::int64_t other = held.cache.fork(slot);
  held.cache.append(other, large, large);
  EXPECT_EQ(held.cache.pages_of(other), (Pages{1}));
  EXPECT_EQ(element(held.k_scales, held.size.order, 1, 1, 0, 0), 1);
  EXPECT_EQ(element(held.k, held.size.order, 1, 1, 0, 0), most);
}

TEST_P(QuantisedCache, ReadsScalesThatAreGiven) {
  Tensor k_pool(GetParam(), {8, 2, 4, 8}), v_pool(DType::f32, {8, 2, 4, 8});
  Tensor scales(DType::f32, {2});
  scales.at<float>({0}) = 0.5f;
  scales.at<float>({1}) = 2;
  const View all(scales.view().data(), DType::f32, {8, 2}, {0, 1});
  PagedKV cache(k_pool, v_pool,
                {.sequences = 2, .pages_per_sequence = 4, .k_scales = all, .scales_given = true});
  Tensor rows(DType::f32, {6, 2, 8});
  std::ranges::fill(rows.data<float>(), 8.0f);
  const std::int64_t slot = cache.add();
  cache.append(slot, rows, rows);
  const std::int64_t other = cache.fork(slot);
  cache.append(other, rows, rows);
  EXPECT_EQ(element(k_pool, PageOrder::heads_first, 2, 0, 0, 0), 16);
  EXPECT_EQ(element(k_pool, PageOrder::heads_first, 2, 1, 0, 0), 4);
  EXPECT_EQ(scales.at<float>({0}), 0.5f);
  EXPECT_EQ(scales.at<float>({1}), 2);
}

}  // namespace
}  // namespace treadle
