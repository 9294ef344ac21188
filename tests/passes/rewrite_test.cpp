// Patterns match what they say and nothing else, and a rule applies where its conditions hold.
#include "passes/rewrite.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/parse.h"
#include "ir/print.h"

namespace treadle::passes {
namespace {

using namespace match;  // letters and conditions

const std::vector<ir::Slot> rewrite_captures{{"ids", DType::i64, 1}};

// The last node of the text after the rule, or "" if the rule does not apply.
template <class Before, class After, class... Conditions>
std::string rewritten(std::string_view text, const Before& before, const After& after,
                      const Conditions&... conditions) {
  const ir::Graph graph = ir::parse(text, rewrite_captures);
  ir::Builder make;
  make.copy(graph);
  NodeProperties properties(make);
  Rewrite rewrite(make, properties, graph[graph.output()]);
  rewrite(before, after, conditions...);
  return rewrite.result() ? ir::to_text(make.finish({*rewrite.result()})) : "";
}

TEST(Rewrite, LettersStandForNodesOfTheirType) {
  EXPECT_EQ(rewritten("-(-q)", -(-i), i), "q");
  EXPECT_EQ(rewritten("-(-score)", -(-i), i), "");
  EXPECT_EQ(rewritten("-(-score)", -(-x), x), "score");
  EXPECT_EQ(rewritten("where(q < kv, 1, 2)", where(p, a, b), where(p, b, a)),
            "where(q < kv, 2, 1)");
  EXPECT_EQ(rewritten("where(q < kv, 1.5, 2.5)", where(p, a, b), where(p, b, a)),
            "where(q < kv, 2.5, 1.5)");
  EXPECT_EQ(rewritten("where(q < kv, 1, 2)", where(p, r, b), b), "");
}

TEST(Rewrite, AConstantsLetterStandsForConstantsOnly) {
  EXPECT_EQ(rewritten("q + 3", i + m, m + i), "3 + q");
  EXPECT_EQ(rewritten("q + kv", i + m, m + i), "");
  EXPECT_EQ(rewritten("3 < q", call(ir::Op::lt, k, a), call(ir::Op::gt, a, k)), "q > 3");
  EXPECT_EQ(rewritten("3.5 < score", call(ir::Op::lt, k, a), call(ir::Op::gt, a, k)),
            "score > 3.5");
}

TEST(Rewrite, ALetterThatStandsTwiceIsOneNode) {
  EXPECT_EQ(rewritten("(q + kv) - (q + kv)", i - i, 0), "0");
  EXPECT_EQ(rewritten("(q + kv) - (kv + q)", i - i, 0), "");
  EXPECT_EQ(rewritten("q % 8 % 8", (i % m) % m, i % m), "q % 8");
  EXPECT_EQ(rewritten("q % 8 % 4", (i % m) % m, i % m), "");
}

TEST(Rewrite, NumbersAreConstantsOfOneTypeAndTheSameBits) {
  EXPECT_EQ(rewritten("q - 0", i - 0, i), "q");
  EXPECT_EQ(rewritten("q - 1", i - 0, i), "");
  EXPECT_EQ(rewritten("score - 0.0", x - 0.0, x), "score");
  EXPECT_EQ(rewritten("score - 0.0", a - 0, a), "");
  EXPECT_EQ(rewritten("score - -0.0", x - 0.0, x), "");
  EXPECT_EQ(rewritten("score + -0.0", x + -0.0, x), "score");
  EXPECT_EQ(rewritten("q * -1", i * -1, -i), "-q");
  EXPECT_EQ(rewritten("q < kv && true", p && true, p), "q < kv");
  EXPECT_EQ(rewritten("q < kv && false", p && true, p), "");
}

TEST(Rewrite, OperationsMustBeTheSame) {
  EXPECT_EQ(rewritten("q + kv", i - j, i), "");
  EXPECT_EQ(rewritten("-(q - kv)", -(i - j), j - i), "kv - q");
  EXPECT_EQ(rewritten("-(q + kv)", -(i - j), j - i), "");
  EXPECT_EQ(rewritten("-q", i - j, i), "");
}

TEST(Rewrite, FoldComputesAConstant) {
  EXPECT_EQ(rewritten("q + 3 + 4", (i + m) + n, i + fold(m + n)), "q + 7");
  EXPECT_EQ(rewritten("q + 9223372036854775807 + 1", (i + m) + n, i + fold(m + n)),
            "q + -9223372036854775808");
  EXPECT_EQ(rewritten("score + 0.5", x + c, x + fold(c + 0.25)), "score + 0.75");
  // fp32 and fp64 do not agree on this one, so it stays an operation.
  EXPECT_EQ(rewritten("score + 0.3", x + c, x + fold(c + 0.4)), "score + (0.3 + 0.4)");
}

TEST(Rewrite, ConditionsMustAllHold) {
  EXPECT_EQ(rewritten("q - q", i - i, 0, sound(i)), "0");
  EXPECT_EQ(rewritten("ids[q] - ids[q]", i - i, 0, sound(i)), "");
  EXPECT_EQ(rewritten("3 + q", m + i, i + m, varies(i)), "q + 3");
  EXPECT_EQ(rewritten("3 + 4", m + i, i + m, varies(i)), "");
  EXPECT_EQ(rewritten("abs(q)", abs(i), i, never_negative(i)), "q");
  EXPECT_EQ(rewritten("abs(q - kv)", abs(i), i, never_negative(i)), "");
  EXPECT_EQ(rewritten("q - ids[q]", i - j, 0, small(i)), "0");
  EXPECT_EQ(rewritten("q - ids[q]", i - j, 0, small(i), small(j)), "");
  EXPECT_EQ(rewritten("q - 3", i - m, 0, positive(m)), "0");
  EXPECT_EQ(rewritten("q - -3", i - m, 0, positive(m)), "");
  EXPECT_EQ(rewritten("q - -3", i - m, 0, negative(m)), "0");
  EXPECT_EQ(rewritten("q - 0", i - m, 0, negative(m)), "");
}

TEST(Rewrite, TheFirstRuleThatAppliesWins) {
  const ir::Graph graph = ir::parse("q - 0", {});
  ir::Builder make;
  make.copy(graph);
  NodeProperties properties(make);
  Rewrite rewrite(make, properties, graph[graph.output()]);
  rewrite(i - 1, 1);
  EXPECT_FALSE(rewrite.result());
  rewrite(i - 0, i);
  rewrite(i - m, 2);
  EXPECT_EQ(ir::to_text(make.finish({*rewrite.result()})), "q");
}

}  // namespace
}  // namespace treadle::passes
