// Mods made of mods: chained, combined, and called inside lambdas.
#include <gtest/gtest.h>

#include "traced.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::traced_mask;
using test::traced_score;

TEST(Compose, ChainRunsTheFirstFirst) {
  const ScoreMod twice = [](Score s, Index, Index, Index, Index) { return s * 2; };
  const ScoreMod next = [](Score s, Index, Index, Index q, Index) { return s + q; };
  EXPECT_EQ(traced_score(mods::chain(twice, next)).text(), "score * 2.0 + float(q)");
  EXPECT_EQ(traced_score(mods::chain(next, twice)).text(), "(score + float(q)) * 2.0");
  EXPECT_EQ(traced_score(mods::chain({}, {})).text(), "score");
}

TEST(Compose, AModThatReturnsAnIntegerGivesAFloat) {
  const ScoreMod distance = [](Score, Index, Index, Index q, Index kv) { return q - kv; };
  EXPECT_EQ(traced_score(mods::chain(distance, mods::soft_cap(2))).text(),
            "2.0 * tanh(float(q - kv) / 2.0)");
}

TEST(Compose, MasksCombineLikeBools) {
  const MaskMod causal = mods::causal();
  const MaskMod near = mods::window(4);
  EXPECT_EQ(traced_mask(causal & near).text(), "q >= kv && abs(q - kv) < 4");
  EXPECT_EQ(traced_mask(causal | near).text(), "q >= kv || abs(q - kv) < 4");
  EXPECT_EQ(traced_mask(!(causal | !near)).text(), "!(q >= kv || !(abs(q - kv) < 4))");
}

TEST(Compose, FlexAttentionsNames) {
  const auto later = [](Index, Index, Index q, Index kv) { return q < kv; };
  EXPECT_EQ(traced_mask(mods::and_masks(mods::causal(), later)).text(),
            "true && q >= kv && q < kv");
  EXPECT_EQ(traced_mask(mods::or_masks(later, mods::causal())).text(), "q < kv || q >= kv");
  EXPECT_EQ(traced_mask(mods::and_masks()).text(), "true");
  EXPECT_EQ(traced_mask(mods::not_mask(later)).text(), "!(q < kv)");
}

TEST(Compose, TextsCombineWithLambdas) {
  const MaskMod near = [](Index, Index, Index q, Index kv) { return abs(q - kv) < 4; };
  EXPECT_EQ(traced_mask(parse("q >= kv") & near).text(), "q >= kv && abs(q - kv) < 4");
  EXPECT_EQ(traced_mask(parse("q >= kv") | parse("b == 0")).text(), "q >= kv || b == 0");
}

TEST(Compose, TextInsideALambda) {
  const Expression cap = parse("cap * tanh(score / cap)", {{"cap", 3.0}});
  EXPECT_EQ(traced_score([&](Score s, Index b, Index h, Index q, Index kv) {
              return cap(s * 2, b, h, q, kv) + 1;
            }).text(),
            "cap * tanh(score * 2.0 / cap) + 1.0");
}

TEST(Compose, TextWithOtherIndices) {
  const Expression causal = parse("q >= kv");
  EXPECT_EQ(traced_mask([&](Index b, Index h, Index q, Index kv) {
              return causal(b, h, floor_div(q, 2), kv + 1) && causal(b, h, h, kv);
            }).text(),
            "q // 2 >= kv + 1 && h >= kv");
}

TEST(Compose, TextAsAValueKeepsItsType) {
  EXPECT_EQ(traced_mask([&](Index b, Index h, Index q, Index kv) {
              return parse("q // 2")(b, h, q, kv) == kv;
            }).text(),
            "q // 2 == kv");
}

TEST(Compose, AMaskInsideAScoreMod) {
  const MaskMod causal = mods::causal();
  EXPECT_EQ(traced_score([&](Score s, Index b, Index h, Index q, Index kv) {
              return where(causal(b, h, q, kv), s, -1.0);
            }).text(),
            "where(q >= kv, score, -1.0)");
}

TEST(Compose, CapturesOfPartsMeetInOneTable) {
  Tensor slopes(DType::f32, {4});
  const Expression text = parse("score + slopes[h]", {{"slopes", slopes}});
  const Capture same("slopes", slopes);
  const test::Traced traced = traced_score([&](Score s, Index b, Index h, Index q, Index kv) {
    return text(s, b, h, q, kv) * same(h) + slopes(0);
  });
  EXPECT_EQ(traced.text(), "t0 = slopes[h];\n(score + t0) * t0 + c0[0]");
  EXPECT_EQ(traced.captures.size(), 2u);
}

TEST(Compose, ElementsMayStandForScoreAndIndices) {
  Tensor ids(DType::i32, {8});
  const Expression text = parse("score * float(q)");
  const ScoreMod twice = [](Score s, Index, Index, Index, Index) { return s * 2; };
  EXPECT_EQ(traced_score([&](Score, Index b, Index h, Index, Index kv) {
              return text(Score(ids(1)), b, h, Index(ids(2)), kv);
            }).text(),
            "float(c0[1]) * float(c0[2])");
  EXPECT_EQ(traced_score([&](Score, Index b, Index h, Index q, Index kv) {
              return twice(Score(ids(1)), b, h, q, kv);
            }).text(),
            "float(c0[1]) * 2.0");
  EXPECT_EQ(traced_mask([&](Index b, Index h, Index, Index kv) {
              return mods::causal()(b, h, Index(ids(2)), kv);
            }).text(),
            "c0[2] >= kv");
}

TEST(Compose, AnExpressionSaysWhatItIs) {
  EXPECT_EQ(parse(" score+2*q ").text(), "score + float(2 * q)");
  EXPECT_FALSE(parse("score").is_bool());
  EXPECT_TRUE(parse("q < kv").is_bool());
}

TEST(Compose, UnusedCapturesOfATextAreLeftOut) {
  Tensor slopes(DType::f32, {4});
  const Expression text = parse("score", {{"slopes", slopes}});
  EXPECT_TRUE(traced_score(text).captures.empty());
}

}  // namespace
}  // namespace treadle
