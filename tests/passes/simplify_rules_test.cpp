// Every rule of simplify on an expression that only this rule can change.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "ir/parse.h"
#include "ir/print.h"
#include "passes/simplify.h"

namespace treadle::passes {
namespace {

// table, bits: reads that may be poisoned; number, flag: reads that may not.
const std::vector<ir::Slot> rule_captures{{"table", DType::i64, 1},
                                          {"number", DType::i64, 0},
                                          {"bits", DType::boolean, 1},
                                          {"flag", DType::boolean, 0}};

struct Example {
  std::string_view before, after;
};

void expect_simplified(const std::vector<Example>& examples) {
  for (const auto& [before, after] : examples) {
    EXPECT_EQ(ir::to_text(simplify(ir::parse(before, rule_captures))), after) << before;
  }
}

TEST(SimplifyRules, IntegerArithmetic) {
  expect_simplified({{"table[q] + 0", "table[q]"},
                     {"table[q] + 9223372036854775807 + 2", "table[q] + -9223372036854775807"},
                     {"3 + table[q]", "table[q] + 3"},
                     {"table[q] - 0", "table[q]"},
                     {"0 - table[q]", "-table[q]"},
                     {"number - number", "0"},
                     {"table[q] * 1", "table[q]"},
                     {"table[q] * -1", "-table[q]"},
                     {"number * 0", "0"},
                     {"3 * table[q]", "table[q] * 3"},
                     {"-(-table[q])", "table[q]"},
                     {"-(q - kv)", "kv - q"},
                     {"abs(q // 2)", "q // 2"},
                     {"abs(-number)", "abs(number)"},
                     {"min(table[q], table[q])", "table[q]"},
                     {"max(table[q], table[q])", "table[q]"}});
}

TEST(SimplifyRules, RealArithmetic) {
  expect_simplified({{"score + -0.0", "score"},
                     {"score + -float(q)", "score - float(q)"},
                     {"0.3 + score", "score + 0.3"},
                     {"score - 0.0", "score"},
                     {"score - -float(q)", "score + float(q)"},
                     {"score * 1.0", "score"},
                     {"score * -1.0", "-score"},
                     {"0.3 * score", "score * 0.3"},
                     {"-(-score)", "score"},
                     {"abs(-score)", "abs(score)"},
                     {"abs(abs(score))", "abs(score)"}});
}

TEST(SimplifyRules, RealFunctions) {
  expect_simplified({{"score / 1.0", "score"},
                     {"score / -1.0", "-score"},
                     {"score / -8.0", "score * -0.125"},
                     {"score ** 1.0", "score"},
                     {"score ** 0.0", "1.0"},
                     {"floor(round(score))", "round(score)"},
                     {"ceil(trunc(score))", "trunc(score)"},
                     {"round(float(q))", "float(q)"},
                     {"isnan(float(number))", "false"},
                     {"isinf(float(flag))", "false"}});
}

TEST(SimplifyRules, IntegersOnly) {
  expect_simplified({{"table[q] // 1", "table[q]"},
                     {"table[q] // -1", "-table[q]"},
                     {"table[q] // 3 // 5", "table[q] // 15"},
                     {"number % 1", "0"},
                     {"number % -1", "0"},
                     {"table[q] % 7 % 7", "table[q] % 7"},
                     {"table[q] & -1", "table[q]"},
                     {"table[q] & table[q]", "table[q]"},
                     {"number & 0", "0"},
                     {"6 & table[q]", "table[q] & 6"},
                     {"table[q] | 0", "table[q]"},
                     {"table[q] | table[q]", "table[q]"},
                     {"number | -1", "-1"},
                     {"6 | table[q]", "table[q] | 6"},
                     {"table[q] ^ 0", "table[q]"},
                     {"number ^ number", "0"},
                     {"6 ^ table[q]", "table[q] ^ 6"},
                     {"~~table[q]", "table[q]"},
                     {"table[q] << 0", "table[q]"},
                     {"table[q] >> 0", "table[q]"}});
}

TEST(SimplifyRules, Comparisons) {
  expect_simplified({{"3 < number", "number > 3"},
                     {"3 <= number", "number >= 3"},
                     {"3 > number", "number < 3"},
                     {"3 >= number", "number <= 3"},
                     {"3 == number", "number == 3"},
                     {"3 != number", "number != 3"},
                     {"0.3 < score", "score > 0.3"},
                     {"number == number", "true"},
                     {"number <= number", "true"},
                     {"number >= number", "true"},
                     {"number != number", "false"},
                     {"number < number", "false"},
                     {"number > number", "false"},
                     {"q - kv < 0", "q < kv"},
                     {"q - kv != 0", "q != kv"},
                     {"q + 5 <= 7", "q <= 2"},
                     {"q == -1", "false"},
                     {"q <= -1", "false"},
                     {"q < -1", "false"},
                     {"q != -1", "true"},
                     {"q > -1", "true"},
                     {"q >= -1", "true"},
                     {"q >= 0", "true"},
                     {"q < 0", "false"}});
}

TEST(SimplifyRules, Logic) {
  expect_simplified({{"!!bits[q]", "bits[q]"},
                     {"!(score == 0.5)", "score != 0.5"},
                     {"!(score != 0.5)", "score == 0.5"},
                     {"!(number < q)", "number >= q"},
                     {"!(number <= q)", "number > q"},
                     {"!(number > q)", "number <= q"},
                     {"!(number >= q)", "number < q"},
                     {"bits[q] && false", "false"},
                     {"true && bits[q]", "bits[q]"},
                     {"bits[q] && bits[q]", "bits[q]"},
                     {"flag && !flag", "false"},
                     {"!flag && flag", "false"},
                     {"(bits[q] && bits[kv]) && bits[q]", "bits[q] && bits[kv]"},
                     {"(bits[q] && bits[kv]) && bits[kv]", "bits[q] && bits[kv]"},
                     {"bits[q] || true", "true"},
                     {"false || bits[q]", "bits[q]"},
                     {"bits[q] || bits[q]", "bits[q]"},
                     {"flag || !flag", "true"},
                     {"!flag || flag", "true"},
                     {"(bits[q] || bits[kv]) || bits[q]", "bits[q] || bits[kv]"},
                     {"(bits[q] || bits[kv]) || bits[kv]", "bits[q] || bits[kv]"},
                     {"false ^ bits[q]", "bits[q]"},
                     {"bits[q] ^ true", "!bits[q]"},
                     {"flag ^ flag", "false"}});
}

TEST(SimplifyRules, Choices) {
  expect_simplified({{"where(true, table[q], table[kv])", "table[q]"},
                     {"where(false, table[q], table[kv])", "table[kv]"},
                     {"where(flag, table[q], table[q])", "table[q]"},
                     {"where(!bits[q], 1, 2)", "where(bits[q], 2, 1)"},
                     {"where(bits[q], where(bits[q], 1, 2), 3)", "where(bits[q], 1, 3)"},
                     {"where(bits[q], 1, where(bits[q], 2, 3))", "where(bits[q], 1, 3)"},
                     {"where(bits[q], true, false)", "bits[q]"},
                     {"where(bits[q], false, true)", "!bits[q]"},
                     {"where(flag, bits[q], false)", "flag && bits[q]"},
                     {"where(flag, true, bits[q])", "flag || bits[q]"}});
}

TEST(SimplifyRules, Conversions) {
  expect_simplified({{"float(int(bits[q]))", "float(bits[q])"},
                     {"int(float(bits[q]))", "int(bits[q])"},
                     {"bool(int(bits[q]))", "bits[q]"},
                     {"bool(float(bits[q]))", "bits[q]"},
                     {"bool(float(table[q]))", "bool(table[q])"}});
}

// What a rule drops must be sound; each of these is a rule but for that.
TEST(SimplifyRules, WhatMayBePoisonedIsNotDropped) {
  for (const std::string_view text :
       {"t = table[q]; t - t", "table[q] * 0", "table[q] % 1", "table[q] % -1", "table[q] & 0",
        "table[q] | -1", "t = table[q]; t ^ t", "t = table[q]; t == t", "t = bits[q]; t && !t",
        "t = bits[q]; !t && t", "t = bits[q]; t || !t", "t = bits[q]; !t || t",
        "t = bits[q]; t ^ t", "isnan(float(table[q]))", "isinf(float(bits[q]))",
        "where(bits[q], 1, 1)", "where(bits[q], flag, false)", "where(bits[q], true, flag)",
        "float(table[q]) ** 0.0"}) {
    const ir::Graph graph = ir::parse(text, rule_captures);
    EXPECT_EQ(simplify(graph), graph) << text;
  }
}

}  // namespace
}  // namespace treadle::passes
