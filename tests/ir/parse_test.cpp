// What text means: precedence, numbers, names, captures. Mistakes are in parse_error_test.
#include "ir/parse.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/print.h"

namespace treadle::ir {
namespace {

const std::vector<Slot> parse_captures{
    {"x", DType::f32, 0},     {"y", DType::f32, 0},     {"z", DType::f32, 0},
    {"i", DType::i64, 0},     {"j", DType::i64, 0},     {"k", DType::i64, 0},
    {"p", DType::boolean, 0}, {"r", DType::boolean, 0}, {"s", DType::boolean, 0},
    {"a", DType::f32, 1},     {"m", DType::i32, 2},     {"cube", DType::f32, 3}};

// Both texts mean the same graph. The right one has only calls, so nothing about it is in doubt.
void expect_same(const std::string& text, const std::string& calls) {
  EXPECT_EQ(parse(text, parse_captures), parse(calls, parse_captures))
      << text << "\nreads as\n"
      << to_text(parse(text, parse_captures)) << "\nnot as\n"
      << calls;
}

TEST(Parse, PrecedenceIsPythons) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"x + y * z", "add(x, mul(y, z))"},
      {"(x + y) * z", "mul(add(x, y), z)"},
      {"x - y - z", "sub(sub(x, y), z)"},
      {"x / y * z", "mul(div(x, y), z)"},
      {"i // j % k", "mod(floor_div(i, j), k)"},
      {"x ** y ** z", "pow(x, pow(y, z))"},
      {"x * y ** z", "mul(x, pow(y, z))"},
      {"-x ** y", "neg(pow(x, y))"},
      {"x ** -y", "pow(x, neg(y))"},
      {"x ** -y ** z", "pow(x, neg(pow(y, z)))"},
      {"x ** -y * z", "mul(pow(x, neg(y)), z)"},
      {"-x * y", "mul(neg(x), y)"},
      {"-x - -y", "sub(neg(x), neg(y))"},
      {"- - x", "neg(neg(x))"},
      {"+x", "x"},
      {"~i + j", "add(bit_not(i), j)"},
      {"~-i", "bit_not(neg(i))"},
      {"i << j + k", "shift_left(i, add(j, k))"},
      {"i << j >> k", "shift_right(shift_left(i, j), k)"},
      {"i & j << k", "bit_and(i, shift_left(j, k))"},
      {"i | j & k", "bit_or(i, bit_and(j, k))"},
      {"i ^ j & k", "bit_xor(i, bit_and(j, k))"},
      {"i | j ^ k", "bit_or(i, bit_xor(j, k))"},
      {"i ^ j | k", "bit_or(bit_xor(i, j), k)"},
      {"i | j == k", "eq(bit_or(i, j), k)"},  // not C's
      {"i & j != k", "ne(bit_and(i, j), k)"},
      {"i < j + k", "lt(i, add(j, k))"},
      {"p && i < j", "logical_and(p, lt(i, j))"},
      {"p || r && s", "logical_or(p, logical_and(r, s))"},
      {"p or r and s", "logical_or(p, logical_and(r, s))"},
      {"p and r or s", "logical_or(logical_and(p, r), s)"},
      {"not p and r", "logical_and(logical_not(p), r)"},
      {"not i < j", "logical_not(lt(i, j))"},
      {"not not p", "logical_not(logical_not(p))"},
      {"p and not r or s", "logical_or(logical_and(p, logical_not(r)), s)"},
      {"!p && r", "logical_and(logical_not(p), r)"},
      {"!p == r", "eq(logical_not(p), r)"},  // tighter than `not`
      {"not p == r", "logical_not(eq(p, r))"},
      {"~p", "logical_not(p)"},
      {"p & r | s", "logical_or(logical_and(p, r), s)"},
      {"p ^ r", "logical_xor(p, r)"},
      {"p & i", "bit_and(int(p), i)"},
  };
  for (const auto& [text, calls] : cases) expect_same(text, calls);
}

TEST(Parse, ASignBeforeANumberMakesAConstant) {
  expect_same("-2 ** x", "neg(pow(2, x))");
  expect_same("(-2) ** x", "pow(-2, x)");
  expect_same("-inf ** x", "neg(pow(inf, x))");
  expect_same("x ** -2", "pow(x, -2)");
  expect_same("x ** -2 ** y", "pow(x, neg(pow(2, y)))");
  Builder make;
  EXPECT_EQ(parse("-5", {}), make.finish({make.integer(-5)}));
  EXPECT_EQ(parse("- 5", {}), make.finish({make.integer(-5)}));
  EXPECT_EQ(parse("-0.0", {}), make.finish({make.real(-0.0)}));
  EXPECT_EQ(parse("-0", {}), make.finish({make.integer(0)}));
  EXPECT_EQ(parse("-inf", {}), make.finish({make.real(-std::numeric_limits<double>::infinity())}));
  EXPECT_EQ(parse("--5", {}), make.finish({make(Op::neg, make.integer(-5))}));
}

TEST(Parse, Numbers) {
  const auto expect_real = [](const char* text, double value) {
    Builder make;
    EXPECT_EQ(parse(text, {}), make.finish({make.real(value)})) << text;
  };
  expect_real("1.5", 1.5);
  expect_real("5.", 5);
  expect_real(".5", 0.5);
  expect_real("5.e2", 500);
  expect_real("1e3", 1000);
  expect_real("1E+3", 1000);
  expect_real("1e-3", 0.001);
  expect_real("5e-324", 5e-324);
  expect_real("2.2250738585072011e-308", 2.2250738585072011e-308);
  expect_real("1.7976931348623157e308", std::numeric_limits<double>::max());
  expect_real("123456789012345678901234567890.", 123456789012345678901234567890.);
  const auto expect_integer = [](const char* text, std::int64_t value) {
    Builder make;
    EXPECT_EQ(parse(text, {}), make.finish({make.integer(value)})) << text;
  };
  expect_integer("007", 7);
  expect_integer("9223372036854775807", std::numeric_limits<std::int64_t>::max());
  expect_integer("-9223372036854775808", std::numeric_limits<std::int64_t>::min());
}

TEST(Parse, IndexingByCommasOrOneByOne) {
  expect_same("cube[b, h, q]", "cube[b][h][q]");
  expect_same("cube[b, h][q]", "cube[b][h, q]");
  expect_same("a[m[q, kv]]", "a[m[q][kv]]");
  expect_same("a[p]", "a[int(p)]");
}

TEST(Parse, Definitions) {
  expect_same("t = x * y; u = t + t; u ** t", "pow(add(mul(x, y), mul(x, y)), mul(x, y))");
  expect_same("unused = a[h]; x", "x");
  expect_same("t = i; t == j", "eq(i, j)");
}

TEST(Parse, SpacesLinesAndComments) {
  expect_same("# softcap\n x \t*\r\n y # the rest\n", "mul(x, y)");
  expect_same("x*y", "mul(x, y)");
  expect_same("x # y", "x");
}

TEST(Parse, SeveralOutputs) {
  const Graph graph = parse("x, i, p", parse_captures);
  ASSERT_EQ(graph.outputs().size(), 3u);
  EXPECT_EQ(graph[graph.outputs()[1]].type, Type::integer);
}

TEST(Parse, OnlyCapturesThatAreReadBecomeSlots) {
  EXPECT_EQ(parse("score", parse_captures).slots().size(), 0u);
  EXPECT_EQ(parse("m[q, kv] + i", parse_captures).slots().size(), 2u);
}

TEST(Parse, OnlyDerivativesKnowGrad) {
  EXPECT_TRUE(parse("grad * score", {}, Names::derivative).uses(Input::grad));
  expect_same("grad = x; grad + y", "add(x, y)");
}

TEST(Parse, LongTextsThatAreNotDeep) {
  std::string sum = "score";
  for (int n = 0; n < 10'000; ++n) sum += " + q";
  EXPECT_EQ(parse(sum, {}).size(), 10'003);
  std::string brackets = "score";
  for (int n = 0; n < 190; ++n) brackets = "(" + brackets + ")";
  EXPECT_EQ(parse(brackets, {}).size(), 1);
}

}  // namespace
}  // namespace treadle::ir
