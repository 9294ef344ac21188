// Layouts that are held and used again, and those that do not fit.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

class HeldLayout : public testing::Test {
 protected:
  Tensor q = random_tensor(1, DType::f32, {2, 4, 60, 8});
  Tensor k = random_tensor(2, DType::f32, {2, 2, 90, 8});
  Options options;

  HeldLayout() { options.mask = mods::causal_lower_right(60, 90); }
  static void expect_same(const Forward& a, const Forward& b) {
    EXPECT_TRUE(same_bits(a.out, b.out));
    EXPECT_TRUE(same_bits(a.lse, b.lse));
    EXPECT_TRUE(same_bits(a.max, b.max));
  }
};

TEST_F(HeldLayout, GivesWhatACallWorksOutItself) {
  const Attention attend = compile(options);
  const Layout layout = attend.layout({q, k, k});
  EXPECT_FALSE(layout.empty());
  const Forward expected = attend.forward({q, k, k}, {.lse = true, .max = true});
  for (int i = 0; i < 3; ++i)
    expect_same(attend.forward({q, k, k}, {.layout = layout, .lse = true, .max = true}), expected);
  const Layout copy = layout;
  expect_same(
      attend.forward({q, k, k},
                     {.executor = tbb_executor(3), .layout = copy, .lse = true, .max = true}),
      expected);
}

// Only lengths and the mask count: types, dims, key heads, values and scales do not.
TEST_F(HeldLayout, FitsOtherInputsOfTheSameLengths) {
  const Layout layout = compile(options).layout(
      {DType::f32, {2, 4, 60, 8}}, {DType::f32, {2, 2, 90, 8}}, {DType::f32, {2, 2, 90, 8}});
  const Tensor q2 = random_tensor(3, DType::bf16, {2, 4, 60, 5});
  const Tensor k2 = random_tensor(4, DType::f64, {1, 4, 90, 5});
  const Tensor v2 = random_tensor(5, DType::f16, {1, 4, 90, 11});
  options.scale = 0.1;
  options.score_mod = mods::soft_cap(2);
  const Attention other = compile(options);
  expect_same(other.forward({q2, k2, v2}, {.layout = layout, .lse = true, .max = true}),
              other.forward({q2, k2, v2}, {.lse = true, .max = true}));
}

TEST_F(HeldLayout, OutlivesWhatItWasMadeBy) {
  const Layout layout = [&] { return compile(options).layout({q, k, k}); }();
  expect_same(compile(options).forward({q, k, k}, {.layout = layout, .lse = true, .max = true}),
              attention({q, k, k}, options, {.lse = true, .max = true}));
}

TEST_F(HeldLayout, FollowsTheCaptures) {
  options.mask = mods::window(Capture("size", 5));
  const Attention attend = compile(options);
  const Call wide{.captures = {{"size", 40}}, .lse = true, .max = true};
  const Layout layout = attend.layout({q, k, k}, wide);
  EXPECT_GT(layout.density(), attend.layout({q, k, k}).density());
  expect_same(
      attend.forward({q, k, k},
                     {.captures = {{"size", 40}}, .layout = layout, .lse = true, .max = true}),
      attend.forward({q, k, k}, wide));
}

TEST_F(HeldLayout, SaysWhatIsInIt) {
  const Layout layout = compile(options).layout({q, k, k});
  EXPECT_GT(layout.density(), 0.5);
  EXPECT_LT(layout.density(), 1);
  EXPECT_GT(layout.bytes(), 0);
  EXPECT_NE(layout.describe().find("full"), std::string::npos);
  const Layout none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.density(), 0);
  EXPECT_EQ(none.bytes(), 0);
  EXPECT_EQ(none.describe(), "no layout\n");
}

TEST_F(HeldLayout, ForNoQueriesOrNoKeys) {
  const Attention attend = compile(options);
  const Tensor no_queries(DType::f32, {2, 4, 0, 8});
  const Tensor no_keys(DType::f32, {2, 2, 0, 8});
  const Layout a = attend.layout({no_queries, k, k});
  EXPECT_EQ(attend.forward({no_queries, k, k}, {.layout = a}).out.count(), 0);
  const Layout b = attend.layout({q, no_keys, no_keys});
  const Forward y = attend.forward({q, no_keys, no_keys}, {.layout = b, .lse = true, .max = true});
  for (const float x : y.out.data<float>()) EXPECT_EQ(x, 0);
}

TEST_F(HeldLayout, OfOtherLengthsIsRefused) {
  const Attention attend = compile(options);
  const Layout layout = attend.layout({q, k, k});
  const auto refused = [&](const Dims& queries, const Dims& keys, const std::string& seen) {
    const Tensor a(DType::f32, queries), b(DType::f32, keys);
    EXPECT_ERROR(attend.forward({a, b, b}, {.layout = layout}),
                 "forward: the layout is for batch 2, 4 heads, 60 queries and 90 keys, the inputs "
                 "have " +
                     seen + "; they must be equal");
  };
  refused({2, 4, 61, 8}, {2, 2, 90, 8}, "batch 2, 4 heads, 61 queries and 90 keys");
  refused({2, 4, 60, 8}, {2, 2, 89, 8}, "batch 2, 4 heads, 60 queries and 89 keys");
  refused({1, 4, 60, 8}, {1, 2, 90, 8}, "batch 1, 4 heads, 60 queries and 90 keys");
  refused({2, 2, 60, 8}, {2, 2, 90, 8}, "batch 2, 2 heads, 60 queries and 90 keys");
}

TEST_F(HeldLayout, OfAnotherMaskIsRefused) {
  const Layout layout = compile(options).layout({q, k, k});
  options.mask = mods::window(9);
  Tensor out = random_tensor(7, DType::f32, {2, 4, 60, 8});
  const Tensor before = out.clone();
  EXPECT_ERROR(compile(options).forward_into({out, {}, {}}, {q, k, k}, {.layout = layout}),
               "forward: the layout was made for another mask; Attention::layout makes the one it "
               "needs");
  EXPECT_TRUE(same_bits(out, before));
  options.mask = {};
  EXPECT_ERROR(attention({q, k, k}, options, {.layout = layout}),
               "forward: the layout was made for another mask; Attention::layout makes the one it "
               "needs");
}

TEST_F(HeldLayout, IsNotForTheReference) {
  const Layout layout = compile(options).layout({q, k, k});
  options.backend = Backend::reference;
  EXPECT_ERROR(attention({q, k, k}, options, {.layout = layout}),
               "forward: a layout was passed, but Backend::reference does not use layouts");
  EXPECT_ERROR(compile(options).layout({q, k, k}),
               "layout: Backend::reference does not use layouts; Backend::cpu does");
}

TEST_F(HeldLayout, ChecksTheShapesItIsAskedFor) {
  const Attention attend = compile(options);
  EXPECT_ERROR(attend.layout({DType::f32, {2, 4, 60, 8}}, {DType::f32, {2, 3, 90, 8}},
                             {DType::f32, {2, 3, 90, 8}}),
               "layout: queries have 4 heads, keys 3; 4 is not a multiple of 3");
  EXPECT_ERROR(attend.layout({q, k, k}, {.captures = {{"size", 3}}}),
               "layout: no capture is called \"size\"; there are none");
}

}  // namespace
}  // namespace treadle
