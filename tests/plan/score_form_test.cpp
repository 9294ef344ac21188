// How score mods enter the softmax.
#include "plan/score_form.h"

#include <gtest/gtest.h>

#include <numbers>

#include "ir/parse.h"
#include "ir/print.h"
#include "passes/simplify.h"

namespace treadle::plan {
namespace {

using Kind = ScoreForm::Kind;

ScoreForm score_form_of(std::string_view text) {
  static const std::vector<ir::Slot> slots{{"slopes", DType::f32, 1}, {"gain", DType::f64, 0}};
  return score_form(passes::simplify(ir::parse(text, slots)));
}

TEST(ScoreForms, Plain) {
  EXPECT_EQ(score_form_of("score").kind, Kind::plain);
  EXPECT_EQ(score_form_of("score * 1.0").kind, Kind::plain);
  EXPECT_EQ(score_form_of("score").graph.size(), 0);
}

TEST(ScoreForms, Added) {
  for (const auto& [text, rest] :
       {std::pair{"score + slopes[h] * float(kv - q)", "slopes[h] * float(kv - q)"},
        {"slopes[h] + score", "slopes[h]"},
        {"score + gain", "gain"},
        {"score + 2.0", "2.0"},
        {"score + where(q >= kv, 0.0, -inf)", "where(q >= kv, 0.0, -inf)"}}) {
    const ScoreForm form = score_form_of(text);
    EXPECT_EQ(form.kind, Kind::added) << text;
    EXPECT_EQ(ir::to_text(form.graph), rest);
    EXPECT_FALSE(form.graph.uses(ir::Input::score));
  }
}

TEST(ScoreForms, General) {
  for (const char* text :
       {"score * 2.0", "score + score", "score + score * score", "score + tanh(score)",
        "where(q >= kv, score, -inf)", "1.0", "slopes[h] - score", "(score + 1.0) * gain"}) {
    const ScoreForm form = score_form_of(text);
    EXPECT_EQ(form.kind, Kind::general) << text;
    EXPECT_EQ(form.graph, passes::simplify(form.graph));
  }
}

// Only captures that are still read come along.
TEST(ScoreForms, SlotsOfTheRest) {
  const ScoreForm form = score_form_of("score + slopes[h]");
  ASSERT_EQ(form.graph.slots().size(), 1u);
  EXPECT_EQ(form.graph.slots()[0].name, "slopes");
}

TEST(ScoreForms, LogarithmGoesIntoTheQueriesUnlessTheModSeesTheScore) {
  EXPECT_EQ(score_form_of("score").factor(), std::numbers::log2e);
  EXPECT_EQ(score_form_of("score + slopes[h]").factor(), std::numbers::log2e);
  EXPECT_EQ(score_form_of("score * 2.0").factor(), 1.0);
}

}  // namespace
}  // namespace treadle::plan
