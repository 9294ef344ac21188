// Inputs, constants, captures and the rules that op_meaning_test does not reach. Poison has its own
// test.
#include "ir/interpret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/element.h"
#include "base/error.h"
#include "evaluate.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "special_values.h"
#include "treadle/tensor.h"

namespace treadle::ir {
namespace {

using test::evaluate;
using test::Point;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Int = std::int64_t;

using test::inf;
using test::nan;

double real(const char* text, const Point& at = {}) { return evaluate(parse(text, {}), at).real; }
Int integer(const char* text, const Point& at = {}) {
  return evaluate(parse(text, {}), at).integer;
}
bool boolean(const char* text, const Point& at = {}) {
  return evaluate(parse(text, {}), at).boolean;
}

TEST(Interpret, Inputs) {
  const Point at{.score = 1.5, .grad = 2.5, .b = 1, .h = 2, .q = 3, .kv = 4};
  EXPECT_EQ(real("score", at), 1.5);
  EXPECT_EQ(integer("b * 1000 + h * 100 + q * 10 + kv", at), 1234);
  EXPECT_EQ(evaluate(parse("grad", {}, Names::derivative), at).real, 2.5);
}

TEST(Interpret, OneValuePerPointOrOneForAll) {
  const std::vector<float> score{0.5F, 1.5F, 2.5F};
  const std::vector<Int> q{1};
  Interpreter<float> run(parse("score + q", {}), {});
  run({.score = score, .q = q}, 3);
  EXPECT_THAT(run.reals(0), ElementsAre(1.5F, 2.5F, 3.5F));
  run({.score = score, .q = q}, 2);
  EXPECT_THAT(run.reals(0), ElementsAre(1.5F, 2.5F));
}

TEST(Interpret, NoPoints) {
  const Tensor table(DType::f32, {0});
  Interpreter<float> run(parse("score + table[q]", std::vector<Slot>{{"table", DType::f32, 1}}),
                         {table});
  run({}, 0);
  EXPECT_TRUE(run.reals(0).empty());
  EXPECT_TRUE(run.poison(0).empty());
}

TEST(Interpret, TooFewValuesAreOurMistake) {
  const std::vector<float> score{0, 0};
  Interpreter<float> run(parse("score", {}), {});
  EXPECT_THAT(
      ([&] { run({.score = score}, 3); }),
      ThrowsMessage<base::InternalError>(HasSubstr("interpret: 3 points, 2 values of score")));
  EXPECT_THAT([] { Interpreter<float>(parse("score", {}), {ConstView()}); },
              ThrowsMessage<base::InternalError>(HasSubstr("interpret: 0 slots, 1 bindings")));
}

TEST(Interpret, SeveralOutputs) {
  Interpreter<double> run(parse("2.5, 7, true", {}), {});
  run({}, 2);
  EXPECT_THAT(run.reals(0), ElementsAre(2.5, 2.5));
  EXPECT_THAT(run.integers(1), ElementsAre(7, 7));
  EXPECT_THAT(run.booleans(2), ElementsAre(1, 1));
}

TEST(Interpret, InSinglePrecisionEachOperationRoundsOnce) {
  EXPECT_EQ(evaluate<float>(parse("0.1", {}), {}).real, 0.1F);
  const double x = 0.7F;
  const auto rounded_twice =
      static_cast<float>(static_cast<double>(static_cast<float>(std::exp(x))) * x);
  EXPECT_EQ(evaluate<float>(parse("exp(score) * score", {}), {.score = x}).real, rounded_twice);
  EXPECT_EQ(evaluate<float>(parse("score * score", {}), {.score = 1e30}).real, inf);
  EXPECT_EQ(evaluate<float>(parse("float(q) == float(q + 1)", {}), {.q = 16777216}).boolean, true);
}

TEST(Interpret, FloorDivisionAndModuloAreAsInPython) {
  EXPECT_EQ(integer("7 // 2"), 3);
  EXPECT_EQ(integer("-7 // 2"), -4);
  EXPECT_EQ(integer("7 // -2"), -4);
  EXPECT_EQ(integer("-7 // -2"), 3);
  EXPECT_EQ(integer("7 % 2"), 1);
  EXPECT_EQ(integer("-7 % 2"), 1);
  EXPECT_EQ(integer("7 % -2"), -1);
  EXPECT_EQ(integer("-7 % -2"), -1);
  EXPECT_EQ(integer("-8 % 2"), 0);
  EXPECT_EQ(integer("-9223372036854775808 // -1"), std::numeric_limits<Int>::min());
  EXPECT_EQ(integer("-9223372036854775808 % -1"), 0);
}

TEST(Interpret, ShiftsOutsideOf0To63ShiftEverythingOut) {
  EXPECT_EQ(integer("1 << 63"), std::numeric_limits<Int>::min());
  EXPECT_EQ(integer("1 << 64"), 0);
  EXPECT_EQ(integer("1 << -1"), 0);
  EXPECT_EQ(integer("-8 >> 1"), -4);
  EXPECT_EQ(integer("-8 >> 64"), -1);
  EXPECT_EQ(integer("-8 >> -1"), -1);
  EXPECT_EQ(integer("8 >> 64"), 0);
}

TEST(Interpret, IntegersWrap) {
  EXPECT_EQ(integer("9223372036854775807 + 1"), std::numeric_limits<Int>::min());
  EXPECT_EQ(integer("abs(-9223372036854775808)"), std::numeric_limits<Int>::min());
  EXPECT_EQ(integer("-(q)", {.q = std::numeric_limits<Int>::min()}),
            std::numeric_limits<Int>::min());
}

TEST(Interpret, FloatsBecomeIntegersTowardsZeroAndSaturate) {
  EXPECT_EQ(integer("int(2.9)"), 2);
  EXPECT_EQ(integer("int(-2.9)"), -2);
  EXPECT_EQ(integer("int(1e19)"), std::numeric_limits<Int>::max());
  EXPECT_EQ(integer("int(-1e19)"), std::numeric_limits<Int>::min());
  EXPECT_EQ(integer("int(inf)"), std::numeric_limits<Int>::max());
  EXPECT_EQ(integer("int(-inf)"), std::numeric_limits<Int>::min());
  EXPECT_EQ(integer("int(nan)"), 0);
}

TEST(Interpret, TruthOfNumbers) {
  EXPECT_TRUE(boolean("bool(nan)"));
  EXPECT_TRUE(boolean("bool(-0.5)"));
  EXPECT_FALSE(boolean("bool(-0.0)"));
  EXPECT_TRUE(boolean("bool(2)"));
  EXPECT_EQ(integer("int(q == 0) + (kv == 0)"), 2);
}

TEST(Interpret, NanWinsInMinMaxAndClamp) {
  for (const char* text :
       {"min(score, 1.0)", "min(1.0, score)", "max(score, 1.0)", "max(1.0, score)",
        "clamp(score, 0.0, 1.0)", "clamp(1.0, score, 2.0)", "clamp(1.0, 0.0, score)"}) {
    EXPECT_TRUE(std::isnan(real(text, {.score = nan}))) << text;
  }
  EXPECT_EQ(real("clamp(score, 2.0, 1.0)", {.score = 5}),
            1.0);  // bounds the wrong way round: the upper
}

TEST(Interpret, NanInSignAndComparisons) {
  EXPECT_EQ(real("sign(score)", {.score = nan}), 0);
  EXPECT_EQ(real("sign(score)", {.score = -inf}), -1);
  EXPECT_TRUE(boolean("score != score", {.score = nan}));
  EXPECT_FALSE(boolean("score == score || score < 0.0 || score >= 0.0", {.score = nan}));
}

TEST(Interpret, RoundIsHalfToEven) {
  EXPECT_EQ(real("round(0.5)"), 0);
  EXPECT_EQ(real("round(1.5)"), 2);
  EXPECT_EQ(real("round(2.5)"), 2);
  EXPECT_EQ(real("round(-0.5)"), 0);
  EXPECT_EQ(real("round(-1.5)"), -2);
  EXPECT_EQ(real("round(2.51)"), 3);
}

TEST(Interpret, WhereChoosesInEveryType) {
  EXPECT_EQ(real("where(q == 0, 1.5, nan)"), 1.5);
  EXPECT_EQ(integer("where(q == 1, 1, 2)"), 2);
  EXPECT_EQ(boolean("where(q == 0, true, false)"), true);
}

// Element i of every capture is i % 2, which every type holds.
TEST(Interpret, LoadsOfEveryElementType) {
  for (const DType dtype : base::all_dtypes) {
    Tensor table(dtype, {4});
    for (Int i = 0; i < 4; ++i) base::store_int(table.view().data(), dtype, i, i % 2);
    const Graph graph = parse("float(table[q])", std::vector<Slot>{{"table", dtype, 1}});
    for (Int q = 0; q < 4; ++q) {
      EXPECT_EQ(evaluate(graph, {.q = q}, {table}).real, q % 2) << name_of(dtype);
    }
  }
}

TEST(Interpret, IntegersAreReadExactly) {
  Tensor table(DType::i64, {1});
  table.at<Int>({0}) = (Int{1} << 53) + 1;
  const Graph graph = parse("table[q]", std::vector<Slot>{{"table", DType::i64, 1}});
  EXPECT_EQ(evaluate(graph, {}, {table}).integer, (Int{1} << 53) + 1);
}

TEST(Interpret, DoublesAreRoundedWhenReadInSinglePrecision) {
  Tensor table(DType::f64, {});
  table.at<double>({}) = 0.1;
  const Graph graph = parse("scale", std::vector<Slot>{{"scale", DType::f64, 0}});
  EXPECT_EQ(evaluate(graph, {}, {table}).real, 0.1);
  EXPECT_EQ(evaluate<float>(graph, {}, {table}).real, 0.1F);
}

TEST(Interpret, AnyByteIsABool) {
  const std::vector<std::uint8_t> bytes{0, 1, 2, 255};
  const ConstView view(bytes.data(), DType::boolean, {4});
  const Graph graph = parse("int(table[q])", std::vector<Slot>{{"table", DType::boolean, 1}});
  EXPECT_EQ(evaluate(graph, {.q = 0}, {view}).integer, 0);
  for (Int q = 1; q < 4; ++q) EXPECT_EQ(evaluate(graph, {.q = q}, {view}).integer, 1);
}

// Every rank up to 4, walked in every way that strides can.
TEST(Interpret, LoadsOfEveryRankAndStride) {
  std::vector<float> data(1000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  struct Case {
    const char* text;
    Int start;
    Dims shape, strides;
  };
  const Point at{.b = 1, .h = 2, .q = 3, .kv = 4};
  for (const Case& c :
       {Case{"x", 7, {}, {}}, Case{"x[kv]", 0, {5}, {1}}, Case{"x[kv]", 0, {5}, {3}},
        Case{"x[kv]", 4, {5}, {-1}}, Case{"x[kv]", 9, {5}, {0}},
        Case{"x[q, kv]", 0, {4, 5}, {5, 1}}, Case{"x[q, kv]", 0, {4, 5}, {1, 4}},
        Case{"x[q, kv]", 400, {4, 5}, {-100, 7}}, Case{"x[h, q, kv]", 0, {3, 4, 5}, {0, 5, 0}},
        Case{"x[b, h, q, kv]", 119, {2, 3, 4, 5}, {-60, -20, -5, -1}}}) {
    const Dims indices{at.b, at.h, at.q, at.kv};
    Int expected = c.start;
    const std::size_t rank = c.shape.size();
    for (std::size_t axis = 0; axis < rank; ++axis) {
      expected += indices[4 - rank + axis] * c.strides[axis];
    }
    const ConstView view(data.data() + c.start, c.shape, c.strides);
    const Graph graph = parse(c.text, std::vector<Slot>{{"x", DType::f32, static_cast<int>(rank)}});
    EXPECT_EQ(evaluate(graph, at, {view}).real, static_cast<double>(expected))
        << c.text << " " << to_string(c.strides);
  }
}

TEST(Interpret, LoadsOfLoads) {
  Tensor document(DType::i32, {4});
  Tensor bias(DType::f32, {3});
  const std::vector<std::int32_t> ids{2, 0, 1, 2};
  for (Int i = 0; i < 4; ++i) document.at<std::int32_t>({i}) = ids[static_cast<std::size_t>(i)];
  for (Int i = 0; i < 3; ++i) bias.at<float>({i}) = static_cast<float>(10 * i);
  const Graph graph = parse(
      "bias[document[q]]", std::vector<Slot>{{"bias", DType::f32, 1}, {"document", DType::i32, 1}});
  ASSERT_EQ(graph.slots()[0].name, "document");  // slots stand in the order of reading
  EXPECT_EQ(evaluate(graph, {.q = 0}, {document, bias}).real, 20);
  EXPECT_EQ(evaluate(graph, {.q = 2}, {document, bias}).real, 10);
}

TEST(Interpret, RefusesMemoryThatDoesNotFitTheSlot) {
  const Slot slot{"slopes", DType::f32, 1};
  const Tensor wide(DType::f64, {8});
  const Tensor square(DType::f32, {8, 2});
  EXPECT_THAT([&] { check_binding(slot, wide); },
              ThrowsMessage<Error>("capture \"slopes\" was compiled as f32, the call binds f64"));
  EXPECT_THAT([&] { check_binding(slot, square); },
              ThrowsMessage<Error>(
                  "capture \"slopes\" was compiled with rank 1, the call binds shape [8, 2]"));
  EXPECT_THROW(Interpreter<float>(parse("slopes[h]", std::vector<Slot>{slot}), {wide}), Error);
}

}  // namespace
}  // namespace treadle::ir
