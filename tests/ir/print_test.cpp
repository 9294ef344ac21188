// How graphs look as text and as a listing.
#include "ir/print.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/parse.h"

namespace treadle::ir {
namespace {

const std::vector<Slot> print_captures{{"slopes", DType::f32, 1},
                                       {"bias", DType::f32, 3},
                                       {"limit", DType::i64, 0},
                                       {"t1", DType::f32, 0}};

// Parsed and printed.
std::string tidy(const std::string& text) { return to_text(parse(text, print_captures)); }

TEST(Print, ConversionsAreWrittenOut) {
  EXPECT_EQ(tidy("where(q>=kv, score+slopes[h]*(kv-q), -inf)"),
            "where(q >= kv, score + slopes[h] * float(kv - q), -inf)");
}

TEST(Print, BracketsOnlyWhereNeeded) {
  EXPECT_EQ(tidy("(score + 1.0) + 2.0"), "score + 1.0 + 2.0");
  EXPECT_EQ(tidy("score + (1.0 + 2.0)"), "score + (1.0 + 2.0)");
  EXPECT_EQ(tidy("(score ** 2.0) ** 3.0"), "(score ** 2.0) ** 3.0");
  EXPECT_EQ(tidy("score ** (2.0 ** 3.0)"), "score ** 2.0 ** 3.0");
  EXPECT_EQ(tidy("-(score ** 2.0)"), "-score ** 2.0");
  EXPECT_EQ(tidy("(-score) ** -2.0"), "(-score) ** -2.0");
  EXPECT_EQ(tidy("(q < kv) == (q == 0)"), "int(q < kv) == int(q == 0)");
  EXPECT_EQ(tidy("(q & (kv << 2)) | 1"), "q & kv << 2 | 1");
  EXPECT_EQ(tidy("!(q < kv && !(h == 1))"), "!(q < kv && !(h == 1))");
}

TEST(Print, Constants) {
  EXPECT_EQ(tidy("0.0"), "0.0");
  EXPECT_EQ(tidy("-0.0"), "-0.0");
  EXPECT_EQ(tidy("1e300"), "1e+300");
  EXPECT_EQ(tidy("5e-324"), "5e-324");
  EXPECT_EQ(tidy("0.1"), "0.1");
  EXPECT_EQ(tidy("-inf"), "-inf");
  EXPECT_EQ(tidy("nan"), "nan");
  EXPECT_EQ(tidy("-nan"), "neg(nan)");
  EXPECT_EQ(tidy("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(tidy("-(5)"), "neg(5)");
  EXPECT_EQ(tidy("- -5"), "neg(-5)");
  EXPECT_EQ(tidy("5 - -5"), "5 - -5");
  EXPECT_EQ(tidy("true"), "true");
}

TEST(Print, WhatIsUsedTwiceGetsAName) {
  EXPECT_EQ(tidy("tanh(score) * tanh(score)"), "t0 = tanh(score);\nt0 * t0");
  EXPECT_EQ(tidy("score * score"), "score * score");
  EXPECT_EQ(tidy("limit + limit"), "limit + limit");
}

TEST(Print, NamesStepAsideForCaptures) {
  EXPECT_EQ(tidy("sin(score) * sin(score) + cos(score) * cos(score) + t1"),
            "t0 = sin(score);\nt2 = cos(score);\nt0 * t0 + t2 * t2 + t1");
}

TEST(Print, DeepTreesAreCut) {
  std::string text = "score";
  for (int i = 0; i < 30; ++i) text = "sin(" + text + ")";
  const std::string printed = tidy(text);
  EXPECT_EQ(printed.substr(0, 5), "t0 = ");
  EXPECT_EQ(parse(printed, {}), parse(text, {}));
}

TEST(Print, LoadsAndSeveralOutputs) {
  EXPECT_EQ(tidy("bias[b][h, q], limit"), "bias[b, h, q], limit");
}

TEST(Print, TruthIsNotBits) {
  EXPECT_EQ(tidy("(q < kv) & (q < 3) | (h == 0)"), "q < kv && q < 3 || h == 0");
  EXPECT_EQ(tidy("(q < kv) ^ (h == 0)"), "(q < kv) ^ (h == 0)");
  EXPECT_EQ(tidy("~(q < kv)"), "!(q < kv)");
  EXPECT_EQ(tidy("(q < kv) & 1"), "int(q < kv) & 1");
}

TEST(Listing, OneLinePerNode) {
  EXPECT_EQ(to_listing(parse("where(q < 3, slopes[h], -0.5), limit", print_captures)),
            "%0 int = q\n"
            "%1 int = 3\n"
            "%2 bool = lt %0 %1\n"
            "%3 int = h\n"
            "%4 float = load slopes %3\n"
            "%5 float = -0.5\n"
            "%6 float = where %2 %4 %5\n"
            "%7 int = load limit\n"
            "outputs %6 %7\n");
}

TEST(Listing, WorksOnIllegalGraphs) {
  const Graph graph({{.op = Op::load, .slot = 7, .operands = {-1, 5}}}, {}, {9});
  EXPECT_EQ(to_listing(graph), "%0 float = load ? %-1 %5\noutputs %9\n");
}

}  // namespace
}  // namespace treadle::ir
