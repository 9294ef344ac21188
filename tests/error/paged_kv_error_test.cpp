// Caches that make no sense, one mistake per expectation. Each leaves the cache as it was.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "expect_error.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

// Pools of 6 pages of 4 tokens, 2 heads.
class PagedKVErrors : public testing::Test {
 protected:
  Tensor k_pool{DType::f32, {6, 2, 4, 8}}, v_pool{DType::f32, {6, 2, 4, 5}};
  Tensor bytes{DType::i8, {6, 2, 4, 8}}, scales{DType::f32, {6, 2}};
  PagedKVOptions options{.sequences = 2, .pages_per_sequence = 3};
  Tensor k{DType::f32, {3, 2, 8}}, v{DType::f32, {3, 2, 5}};

  static void expect_refused(const View& keys, const View& values, const PagedKVOptions& options,
                             const std::string& message) {
    EXPECT_ERROR(PagedKV(keys, values, options), "PagedKV: " + message);
  }
};

TEST_F(PagedKVErrors, Pools) {
  expect_refused(k, v_pool, options,
                 "k_pool has shape [3, 2, 8]; it must be [pages, heads, page size, dim]");
  options.order = PageOrder::tokens_first;
  expect_refused(k_pool, v, options,
                 "v_pool has shape [3, 2, 5]; it must be [pages, page size, heads, dim]");
  options.order = PageOrder::heads_first;
  Tensor integers(DType::i32, {6, 2, 4, 8}), empty(DType::f32, {6, 2, 0, 8});
  expect_refused(integers, v_pool, options,
                 "k_pool holds i32; it must hold f64, f32, bf16, f16, e4m3, e5m2 or i8");
  expect_refused(empty, v_pool, options,
                 "k_pool has pages of 0 tokens, 2 heads, dim 8; all must be at least 1");
  const View turned(k_pool.view().data(), DType::f32, {6, 2, 4, 8}, {64, 32, 1, 4});
  expect_refused(turned, v_pool, options,
                 "the last stride of k_pool is 4; that of a pool must be 1");
  const View repeated(k_pool.view().data(), DType::f32, {6, 2, 4, 8}, {64, 0, 8, 1});
  expect_refused(repeated, v_pool, options,
                 "k_pool has shape [6, 2, 4, 8] and strides [64, 0, 8, 1]; elements of a result "
                 "must not share memory");
  expect_refused(k_pool, k_pool, options,
                 "k_pool and v_pool begin at the same address; they must not share memory");
  Tensor fewer(DType::f32, {5, 2, 4, 8});
  expect_refused(k_pool, fewer, options,
                 "k_pool has 6 pages of 4 tokens and 2 heads, v_pool 5 of 4 and 2; they must be "
                 "equal");
}

TEST_F(PagedKVErrors, Numbers) {
  options.sequences = 0;
  expect_refused(k_pool, v_pool, options, "sequences is 0; it must be 1 to 2147483647");
  options.sequences = 1;
  options.pages_per_sequence = std::int64_t{1} << 31;
  expect_refused(k_pool, v_pool, options,
                 "pages_per_sequence is 2147483648; it must be 1 to 2147483647");
}

TEST_F(PagedKVErrors, Scales) {
  expect_refused(bytes, v_pool, options,
                 "k_pool holds i8, and there are no k_scales; i8 needs scales");
  options.v_scales = scales;
  expect_refused(k_pool, v_pool, options,
                 "v_pool holds f32, and there are v_scales; only i8, e4m3 and e5m2 have scales");
  options.v_scales.reset();
  Tensor wrong(DType::f32, {6, 4, 2}), halves(DType::f16, {6, 2});
  options.k_scales = wrong;
  expect_refused(bytes, v_pool, options,
                 "k_scales holds f32 of shape [6, 4, 2]; it must be f32 of shape [6, 2, 4] or "
                 "[6, 2]");
  options.k_scales = halves;
  expect_refused(bytes, v_pool, options,
                 "k_scales holds f16 of shape [6, 2]; it must be f32 of shape [6, 2, 4] or [6, 2]");
  options.k_scales = View(scales.view().data(), DType::f32, {6, 2}, {0, 1});
  expect_refused(bytes, v_pool, options,
                 "k_scales has shape [6, 2] and strides [0, 1]; elements of a result must not "
                 "share memory");
}

TEST_F(PagedKVErrors, ScalesThatAreGiven) {
  options.scales_given = true;
  expect_refused(k_pool, v_pool, options, "scales_given is set, but there are no scales");
  Tensor by_token(DType::f32, {6, 2, 4});
  options.k_scales = by_token;
  expect_refused(bytes, v_pool, options,
                 "k_scales has shape [6, 2, 4]; scales that are given must be [6, 2]");
  options.k_scales = scales;
  expect_refused(bytes, v_pool, options,
                 "k_scales holds 0 for page 0, head 0; scales that are given must be positive, "
                 "finite and not subnormal");
  for (float& x : scales.data<float>()) x = 0.5f;
  scales.at<float>({3, 1}) = 0.25f;
  expect_refused(bytes, v_pool, options,
                 "k_scales holds 0.5 for page 0, head 1, and 0.25 for page 3; scales that are "
                 "given must be the same for all pages of a head");
}

TEST_F(PagedKVErrors, SlotsThatAreNotInUse) {
  PagedKV cache(k_pool, v_pool, options);
  const std::string rule = " is not in use; slots in use come from add and fork";
  EXPECT_ERROR(cache.append(0, k, v), "PagedKV::append: slot 0" + rule);
  EXPECT_ERROR(cache.length(-1), "PagedKV::length: slot -1" + rule);
  EXPECT_ERROR(cache.pages_of(7), "PagedKV::pages_of: slot 7" + rule);
  EXPECT_ERROR(cache.fork(0), "PagedKV::fork: slot 0" + rule);
  EXPECT_ERROR(cache.trim(0, 0), "PagedKV::trim: slot 0" + rule);
  const std::int64_t slot = cache.add();
  EXPECT_ERROR(cache.batch({slot, 1}), "PagedKV::batch: slot 1" + rule);
  cache.free(slot);
  EXPECT_ERROR(cache.free(slot), "PagedKV::free: slot 0" + rule);
}

TEST_F(PagedKVErrors, MoreSequencesThanAllowed) {
  PagedKV cache(k_pool, v_pool, options);
  cache.add();
  cache.add();
  EXPECT_ERROR(cache.add(), "PagedKV::add: 2 sequences are in use; there may be 2 at a time");
  EXPECT_ERROR(cache.fork(1), "PagedKV::fork: 2 sequences are in use; there may be 2 at a time");
  EXPECT_EQ(cache.sequences(), 2);
}

TEST_F(PagedKVErrors, Lengths) {
  PagedKV cache(k_pool, v_pool, options);
  cache.append(cache.add(), k, v);
  EXPECT_ERROR(cache.trim(0, 4),
               "PagedKV::trim: the length is 4, sequence 0 has 3 tokens; it must be 0 to 3");
  EXPECT_ERROR(cache.trim(0, -1),
               "PagedKV::trim: the length is -1, sequence 0 has 3 tokens; it must be 0 to 3");
  EXPECT_ERROR(cache.fork(0, 5),
               "PagedKV::fork: the length is 5, sequence 0 has 3 tokens; it must be 0 to 3");
  EXPECT_ERROR(cache.fork(0, -2),
               "PagedKV::fork: the length is -2, sequence 0 has 3 tokens; it must be 0 to 3");
  EXPECT_EQ(cache.length(0), 3);
  EXPECT_EQ(cache.sequences(), 1);
}

TEST_F(PagedKVErrors, Rows) {
  PagedKV cache(k_pool, v_pool, options);
  const std::int64_t slot = cache.add();
  const Tensor integers(DType::i8, {3, 2, 8}), flat(DType::f32, {3, 16}),
      four(DType::f32, {4, 2, 5});
  EXPECT_ERROR(cache.append(slot, integers, v),
               "PagedKV::append: k holds i8; rows must hold f64, f32, bf16 or f16");
  EXPECT_ERROR(cache.append(slot, flat, v),
               "PagedKV::append: k has shape [3, 16]; it must be [tokens, 2, 8]");
  EXPECT_ERROR(cache.append(slot, k, k),
               "PagedKV::append: v has shape [3, 2, 8]; it must be [tokens, 2, 5]");
  EXPECT_ERROR(cache.append(slot, k, four),
               "PagedKV::append: there are 3 keys and 4 values; they must be equal");
  const ConstView inside(k_pool.view().data(), DType::f32, {3, 2, 8});
  EXPECT_ERROR(cache.append(slot, inside, v),
               "PagedKV::append: k lies in the memory of the cache; rows must not");
  EXPECT_EQ(cache.length(slot), 0);
}

TEST_F(PagedKVErrors, MoreTokensThanASequenceMayHave) {
  PagedKV cache(k_pool, v_pool, options);
  const std::int64_t slot = cache.add();
  for (int i = 0; i < 4; ++i) cache.append(slot, k, v);
  const std::string rule = "; it may have 3 pages of 4, 12 tokens";
  EXPECT_ERROR(cache.append(slot, k, v),
               "PagedKV::append: sequence 0 has 12 tokens and gets 3" + rule);
  constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max() / 16;
  const ConstView same_k(k.view().data(), DType::f32, {endless, 2, 8}, {0, 8, 1});
  const ConstView same_v(v.view().data(), DType::f32, {endless, 2, 5}, {0, 5, 1});
  EXPECT_ERROR(cache.append(slot, same_k, same_v),
               "PagedKV::append: sequence 0 has 12 tokens and gets 576460752303423487" + rule);
  EXPECT_EQ(cache.length(slot), 12);
}

TEST_F(PagedKVErrors, MorePagesThanAreFree) {
  options.pages_per_sequence = 9;
  PagedKV cache(k_pool, v_pool, options);
  const std::int64_t slot = cache.add();
  for (int i = 0; i < 7; ++i) cache.append(slot, k, v);  // 21 tokens
  EXPECT_EQ(cache.free_pages(), 0);
  EXPECT_ERROR(
      [&] {
        cache.append(slot, k, v);
        cache.append(slot, k, v);
      }(),
      "PagedKV::append: 3 tokens need 1 more pages; 0 of 6 are free");
  EXPECT_EQ(cache.length(slot), 24);
  cache.trim(slot, 18);  // five pages
  const std::int64_t other = cache.fork(slot, 17);
  // Both write to a page that they share, and one of them needs another one.
  const std::vector<std::int32_t> starts{0, 0, 3};
  const Tensor seven_k(DType::f32, {7, 2, 8}), seven_v(DType::f32, {7, 2, 5});
  const std::vector<std::int32_t> both{0, 2, 7};
  EXPECT_ERROR(cache.append({slot, other}, ConstView(both.data(), {3}), seven_k, seven_v),
               "PagedKV::append: 7 tokens need 2 more pages; 1 of 6 are free");
  EXPECT_EQ(cache.length(slot), 18);
  EXPECT_EQ(cache.length(other), 17);
  EXPECT_EQ(cache.pages_of(slot), cache.pages_of(other));
  cache.append({slot, other}, ConstView(starts.data(), {3}), k, v);
  EXPECT_EQ(cache.free_pages(), 0);
}

TEST_F(PagedKVErrors, Starts) {
  PagedKV cache(k_pool, v_pool, options);
  cache.add();
  cache.add();
  const std::vector<std::int32_t> one{0, 3}, falls{0, 3, 2}, late{1, 2, 3}, short_of{0, 1, 2};
  const auto append = [&](const std::vector<std::int64_t>& slots,
                          const std::vector<std::int32_t>& starts) {
    cache.append(slots, ConstView(starts.data(), {std::ssize(starts)}), k, v);
  };
  EXPECT_ERROR(append({0, 1}, one),
               "PagedKV::append: starts is for 1 sequences, there are 2 slots; they must be equal");
  EXPECT_ERROR(append({0, 1}, falls),
               "PagedKV::append: starts holds 2 after 3; starts must not fall");
  EXPECT_ERROR(append({0, 1}, late), "PagedKV::append: starts begins with 1; it must begin with 0");
  EXPECT_ERROR(append({0, 1}, short_of),
               "PagedKV::append: starts ends with 2, there are 3 rows; they must be equal");
  EXPECT_ERROR(append({1, 1}, {0, 1, 3}),
               "PagedKV::append: slot 1 is there twice; each may be once");
  EXPECT_ERROR(append({0, 5}, {0, 1, 3}),
               "PagedKV::append: slot 5 is not in use; slots in use come from add and fork");
  EXPECT_EQ(cache.length(0), 0);
  EXPECT_EQ(cache.free_pages(), 6);
}

TEST_F(PagedKVErrors, NumbersThatCannotBeQuantised) {
  options.k_scales = scales;
  PagedKV cache(bytes, v_pool, options);
  const std::int64_t slot = cache.add();
  const std::string rule = "; numbers that are quantised must be finite in f32";
  k.at<float>({2, 1, 7}) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_ERROR(cache.append(slot, k, v), "PagedKV::append: row 2 of k, head 1 holds nan" + rule);
  k.at<float>({2, 1, 7}) = -std::numeric_limits<float>::infinity();
  EXPECT_ERROR(cache.append(slot, k, v), "PagedKV::append: row 2 of k, head 1 holds -inf" + rule);
  Tensor wide(DType::f64, {3, 2, 8});
  wide.at<double>({0, 0, 1}) = 1e300;
  EXPECT_ERROR(cache.append(slot, wide, v),
               "PagedKV::append: row 0 of k, head 0 holds 1e+300" + rule);
  EXPECT_EQ(cache.length(slot), 0);
  EXPECT_EQ(scales.at<float>({0, 0}), 0);
}

}  // namespace
}  // namespace treadle
