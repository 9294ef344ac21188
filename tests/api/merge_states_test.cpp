// Parts of the keys, merged, are all of them.
#include "treadle/merge_states.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "expect_error.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

struct Parts {
  std::vector<Forward> states;

  [[nodiscard]] std::vector<Saved> saved() const {
    std::vector<Saved> all;
    for (const Forward& state : states) all.push_back({state.out, state.lse});
    return all;
  }
};

// Each part sees the keys whose number leaves this remainder, later queries more of them.
Parts parts_of(const Inputs& inputs, int count, bool causal) {
  Parts parts;
  for (int i = 0; i < count; ++i) {
    Options options;
    options.mask = [=](Index, Index, Index q, Index kv) {
      const Bool mine = kv % count == i;
      return causal ? mine && kv + 3 <= q : mine;
    };
    parts.states.push_back(compile(options).forward(inputs, {.lse = true}));
  }
  return parts;
}

TEST(MergeStates, AreAllKeys) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    for (const bool causal : {false, true}) {
      const Tensor q = test::random_tensor(1, type, {2, 4, 50, 16});
      const Tensor k = test::random_tensor(2, type, {2, 2, 60, 16});
      const Tensor v = test::random_tensor(3, type, {2, 2, 60, 12});
      test::Plain plain(q, k, v);
      if (causal) plain.mask = [](auto, auto, auto m, auto n) { return n + 3 <= m; };
      const test::Plain::Result expected = plain.run();
      for (const int count : {1, 2, 5}) {
        const Parts parts = parts_of({q, k, v}, count, causal);
        const Forward all = merge_states(parts.saved());
        const double tolerance = type == DType::f64 ? 1e-12 : type == DType::f32 ? 1e-5 : 2e-2;
        test::expect_near(all.out, expected.out, tolerance);
        test::expect_near(all.lse, expected.lse, type == DType::f64 ? 1e-12 : 1e-5);
      }
    }
  }
}

TEST(MergeStates, TakeNothingFromPartsThatSawNothing) {
  Tensor seen(DType::f32, {1, 1, 1, 2}), hidden(DType::f32, {1, 1, 1, 2});
  Tensor lse(DType::f32, {1, 1, 1}), none(DType::f32, {1, 1, 1});
  seen.at<float>({0, 0, 0, 0}) = 3;
  hidden.at<float>({0, 0, 0, 0}) = std::numeric_limits<float>::quiet_NaN();
  lse.at<float>({0, 0, 0}) = 1.5f;
  none.at<float>({0, 0, 0}) = -std::numeric_limits<float>::infinity();
  const Forward one = merge_states({{hidden, none}, {seen, lse}});
  EXPECT_EQ(one.out.at<float>({0, 0, 0, 0}), 3);
  EXPECT_EQ(one.lse.at<float>({0, 0, 0}), 1.5f);
  const Forward nothing = merge_states({{hidden, none}, {hidden, none}});
  EXPECT_EQ(nothing.out.at<float>({0, 0, 0, 0}), 0);
  EXPECT_EQ(nothing.lse.at<float>({0, 0, 0}), -std::numeric_limits<float>::infinity());
}

TEST(MergeStates, IntoAPart) {
  const Tensor q = test::random_tensor(1, DType::f32, {1, 2, 30, 8});
  Parts parts = parts_of({q, q, q}, 2, true);
  const Forward apart = merge_states(parts.saved());
  merge_states_into({parts.states[0].out.view(), parts.states[0].lse.view(), std::nullopt},
                    parts.saved());
  EXPECT_TRUE(test::same_bits(parts.states[0].out, apart.out));
  EXPECT_TRUE(test::same_bits(parts.states[0].lse, apart.lse));
}

TEST(MergeStates, BadPartsAreRefused) {
  Tensor out(DType::f32, {1, 2, 4, 3});
  const Tensor other(DType::f32, {1, 2, 4, 5}), lse(DType::f32, {1, 2, 4}),
      low(DType::bf16, {1, 2, 4});
  EXPECT_ERROR(merge_states({}), "merge_states: there are no parts; there must be at least one");
  EXPECT_ERROR(merge_states({{lse, lse}}),
               "merge_states: out is f32 [1, 2, 4]; it must hold f64, f32, bf16 or f16 and be "
               "[batch, heads, "
               "queries, value dim]");
  const Tensor eight(DType::e5m2, {1, 2, 4, 3});
  EXPECT_ERROR(
      merge_states({{eight, lse}}),
      "merge_states: out is e5m2 [1, 2, 4, 3]; it must hold f64, f32, bf16 or f16 and be [batch, "
      "heads, queries, value dim]");
  EXPECT_ERROR(merge_states({{out, low}}), "merge_states: lse holds bf16; it must hold f32 or f64");
  EXPECT_ERROR(merge_states({{out, lse}, {other, lse}}),
               "merge_states: out has shape [1, 2, 4, 5]; it must be [1, 2, 4, 3]");
  const View shifted(out.data<float>().data() + 3, {1, 2, 3, 3}, {24, 12, 3, 1});
  const ConstView first(out.data<float>().data(), {1, 2, 3, 3}, {24, 12, 3, 1});
  const Tensor rows(DType::f32, {1, 2, 3});
  test::expect_error(
      [&] { merge_states_into({shifted, std::nullopt, std::nullopt}, {{first, rows}}); },
      "merge_states: the result out overlaps a part; it must be a part's memory or lie apart");
}

}  // namespace
}  // namespace treadle
