// Captures: which slots a mod's graph has, and what they are called.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ir/parse.h"
#include "traced.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::traced_mask;
using test::traced_score;

std::vector<std::string> names(const std::vector<Capture>& captures) {
  std::vector<std::string> found;
  for (const Capture& capture : captures) found.push_back(capture.name());
  return found;
}

using Names = std::vector<std::string>;

TEST(Captures, ViewTensorAndCaptureReadAlike) {
  Tensor tensor(DType::f32, {4});
  const View view = tensor;
  const ConstView const_view = tensor;
  const Capture capture(const_view);
  const auto text = [](const auto& buffer) {
    return traced_score([&](Score s, Index, Index h, Index, Index) { return s + buffer(h); })
        .text();
  };
  EXPECT_EQ(text(tensor), "score + c0[h]");
  EXPECT_EQ(text(view), "score + c0[h]");
  EXPECT_EQ(text(const_view), "score + c0[h]");
  EXPECT_EQ(text(capture), "score + c0[h]");
  EXPECT_EQ(text(Capture("slopes", view)), "score + slopes[h]");
}

TEST(Captures, RankZeroIsUsedAsItIs) {
  Tensor scalar(DType::f64, {});
  const View view = scalar;
  const auto text = [](const auto& number) {
    return traced_score([&](Score s, Index, Index, Index, Index) { return s * number; }).text();
  };
  EXPECT_EQ(text(scalar), "score * c0");
  EXPECT_EQ(text(view), "score * c0");
  EXPECT_EQ(text(Capture("gain", 2.0)), "score * gain");
  EXPECT_EQ(text(Capture("gain", 2)), "score * float(gain)");
  EXPECT_EQ(text(Capture("gain", true)), "score * float(gain)");
  EXPECT_EQ(traced_score([&](Score s, Index, Index, Index, Index) { return s * scalar(); }).text(),
            "score * c0");
}

TEST(Captures, ScalarsHaveTheWidestType) {
  EXPECT_EQ(Capture("x", 1).view().dtype(), DType::i64);
  EXPECT_EQ(Capture("x", std::uint8_t{1}).view().dtype(), DType::i64);
  EXPECT_EQ(Capture("x", 1.5f).view().dtype(), DType::f64);
  EXPECT_EQ(Capture("x", false).view().dtype(), DType::boolean);
  EXPECT_EQ(Capture("x", -3).view().at<std::int64_t>({}), -3);
}

TEST(Captures, CopiesOfAScalarShareItsValue) {
  auto capture = std::make_unique<Capture>("x", 5);
  const Capture copy = *capture;
  capture.reset();
  EXPECT_EQ(copy.view().at<std::int64_t>({}), 5);
}

TEST(Captures, ConstantIndices) {
  Tensor table(DType::f32, {4, 3});
  Tensor ids(DType::i32, {8});
  EXPECT_EQ(traced_score([&](Score s, Index, Index h, Index, Index) {
              return s + table(h, 2) * table(0, 1);
            }).text(),
            "score + c0[h, 2] * c0[0, 1]");
  EXPECT_EQ(traced_mask([&](Index, Index, Index, Index kv) { return kv < ids(3); }).text(),
            "kv < c0[3]");
  EXPECT_EQ(traced_score([&](Score, Index, Index, Index, Index) { return table(1, 2); }).text(),
            "c0[1, 2]");
}

TEST(Captures, ChainedReads) {
  Tensor table(DType::f32, {4});
  Tensor ids(DType::i32, {8});
  const Capture offset("offset", 1);
  const auto text = [&](auto element) {
    return traced_score([=](Score s, Index, Index, Index q, Index) { return s + element(q); })
        .text();
  };
  EXPECT_EQ(text([&](Index q) { return table(ids(q)); }), "score + c1[c0[q]]");
  EXPECT_EQ(text([&](Index q) { return table(ids(ids(q) + 1)); }), "score + c1[c0[c0[q] + 1]]");
  // Nothing traced takes part until the sum.
  EXPECT_EQ(text([&](Index) { return table(ids(3)); }), "score + c1[c0[3]]");
  EXPECT_EQ(text([&](Index) { return table(offset); }), "score + c0[offset]");
}

// Nothing says in which mod they stand until they meet the score.
TEST(Captures, ComputationsOnCapturesAlone) {
  const Capture temperature("temperature", 2.0);
  const Capture flag("flag", true);
  Tensor ids(DType::i32, {8});
  EXPECT_EQ(traced_score([&](Score s, Index, Index, Index, Index) {
              return s * (1.0 / temperature());
            }).text(),
            "score * (1.0 / temperature)");
  EXPECT_EQ(traced_score([&](Score, Index, Index, Index, Index) {
              return exp(temperature()) + where(!flag() && ids(0) > 1, 1, ids(1));
            }).text(),
            "exp(temperature) + float(where(!flag && c0[0] > 1, 1, c0[1]))");
  EXPECT_EQ(traced_mask([&](Index, Index, Index, Index) { return flag; }).text(), "flag");
}

TEST(Captures, SharedComputationsAreWrittenOnce) {
  const Capture x("x", 2.0);
  const test::Traced traced = traced_score([&](Score s, Index, Index, Index, Index) {
    Value power = x();
    for (int i = 0; i < 60; ++i) power = power * power;
    return s * power;
  });
  EXPECT_EQ(traced.graph.size(), 63);
}

TEST(Captures, AnElementAtConstantIndicesMayBeTyped) {
  Tensor ids(DType::i32, {8});
  Tensor flags(DType::boolean, {8});
  EXPECT_EQ(traced_mask([&](Index, Index, Index q, Index) {
              const Index first(ids(0));
              return q % first == 0 && !Bool(flags(1));
            }).text(),
            "q % c0[0] == 0 && !c1[1]");
  EXPECT_EQ(traced_score([&](Score s, Index, Index, Index, Index) {
              const Float first = ids(0);
              return s + first;
            }).text(),
            "score + float(c0[0])");
}

// Not in the order in which C++ happens to evaluate operands.
TEST(Captures, NamedInTheOrderOfTheGraph) {
  Tensor a(DType::f32, {4});
  Tensor b(DType::f32, {4});
  const Capture named("slopes", a);
  const test::Traced traced = traced_score([&](Score s, Index, Index h, Index, Index) {
    const Value first = b(h);
    return s + named(h) + a(h) + first;
  });
  EXPECT_EQ(names(traced.captures), (Names{"slopes", "c0", "c1"}));
  EXPECT_EQ(traced.text(), "score + slopes[h] + c0[h] + c1[h]");
}

TEST(Captures, ScoreModAndMaskShareOneTable) {
  Tensor ids(DType::i32, {8});
  Tensor slopes(DType::f32, {4});
  Tensor other(DType::i32, {8});
  const auto table = std::make_shared<trace::CaptureTable>();
  const ScoreMod score = [&](Score s, Index, Index h, Index q, Index) {
    return s + slopes(h) * ids(q);
  };
  const MaskMod mask = [&](Index, Index, Index q, Index kv) { return ids(q) == other(kv); };
  EXPECT_EQ(ir::to_text(trace::trace(score, table)), "score + c0[h] * float(c1[q])");
  EXPECT_EQ(ir::to_text(trace::trace(mask, table)), "c1[q] == c2[kv]");
  EXPECT_EQ(names(table->captures()), (Names{"c0", "c1", "c2"}));
}

TEST(Captures, OneViewTwiceIsOneSlot) {
  Tensor ids(DType::i32, {8});
  const test::Traced traced =
      traced_mask([&](Index, Index, Index q, Index kv) { return ids(q) == ConstView(ids)(kv); });
  EXPECT_EQ(traced.text(), "c0[q] == c0[kv]");
  EXPECT_EQ(traced.captures.size(), 1u);
}

TEST(Captures, AnotherShapeOfTheSameMemoryIsAnotherSlot) {
  std::vector<float> data(8);
  const View row(data.data(), {8});
  const View square(data.data(), {2, 4});
  const View backwards(data.data() + 7, {8}, {-1});
  EXPECT_EQ(traced_score([&](Score s, Index b, Index h, Index q, Index) {
              return s + row(q) * square(b, h) * backwards(q);
            }).text(),
            "score + c0[q] * c1[b, h] * c2[q]");
}

TEST(Captures, OtherDataTheSameGraph) {
  const auto graph = [](const Tensor& ids) {
    return traced_mask([&](Index, Index, Index q, Index kv) { return ids(q) == ids(kv); }).graph;
  };
  const Tensor first(DType::i32, {8});
  const Tensor longer(DType::i32, {100});
  const Tensor wider(DType::i64, {8});
  EXPECT_EQ(graph(first), graph(longer));
  EXPECT_EQ(graph(first).hash(), graph(longer).hash());
  EXPECT_NE(graph(first), graph(wider));
}

TEST(Captures, AutomaticNamesStepAsideForGivenOnes) {
  Tensor a(DType::f32, {4});
  Tensor b(DType::f32, {4});
  const Capture named("c0", a);
  EXPECT_EQ(traced_score([&](Score s, Index, Index h, Index, Index) {
              const Value first = named(h);
              return s + first + b(h);
            }).text(),
            "score + c0[h] + c1[h]");
}

TEST(Captures, OneNameAndOneMemoryIsOneSlot) {
  Tensor a(DType::f32, {4});
  EXPECT_EQ(traced_score([&](Score s, Index, Index h, Index, Index) {
              return s + Capture("a", a)(h) + Capture("a", a)(0);
            }).captures.size(),
            1u);
}

TEST(Captures, ReadsThatNoOutputNeedsLeaveNoTrace) {
  Tensor a(DType::f32, {4});
  Tensor b(DType::f32, {4});
  const test::Traced traced = traced_score([&](Score s, Index, Index h, Index, Index) {
    [[maybe_unused]] const Value unused = a(h);
    return s + b(h);
  });
  EXPECT_EQ(traced.text(), "score + c0[h]");
  EXPECT_EQ(names(traced.captures), Names{"c0"});
}

TEST(Captures, ReadsAreValuesOfTheMemory) {
  std::vector<double> data{10, 20, 30};
  const View table(data.data(), {3});
  const test::Traced traced =
      traced_score([&](Score s, Index, Index h, Index, Index) { return s + table(h); });
  EXPECT_EQ(traced.at({.score = 1, .h = 2}).real, 31);
  data[2] = 40;
  EXPECT_EQ(traced.at({.score = 1, .h = 2}).real, 41);
  EXPECT_EQ(traced.at({.score = 1, .h = 3}).poison,
            "c0: index 3 along dimension 0 is outside its length 3");
}

}  // namespace
}  // namespace treadle
