#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "json_rows.h"
#include "run_program.h"

namespace treadle::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> alibi{"explain",    "score + slopes[h]*(kv - q)",
                                     "--mask",     "q >= kv",
                                     "--capture",  "slopes:f32:1",
                                     "--gradient", "slopes"};

// Gradient in two places, a capture that only the mask reads, one that nobody reads, work for
// simplify.
const std::vector<std::string> gated{
    "explain",    "where(q % 2 == 0, gate[h] * tanh(score * 1.0), score + bias[h, kv])",
    "--mask",     "q - kv < window and true",
    "--capture",  "gate:f32:1",
    "--capture",  "bias:bf16:2",
    "--capture",  "window:i64:0",
    "--capture",  "spare:u8:3",
    "--gradient", "gate",
    "--gradient", "bias"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::string& more) {
  arguments.push_back(more);
  return arguments;
}

void expect_explained(const std::vector<std::string>& arguments, const std::string& file) {
  const Ran ran = run_program(arguments);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(ran.out, golden(file, ran.out));
}

TEST(Explain, Alibi) { expect_explained(alibi, "explain_alibi.txt"); }
TEST(Explain, Gated) { expect_explained(gated, "explain_gated.txt"); }
TEST(Explain, NothingGiven) { expect_explained({"explain"}, "explain_nothing.txt"); }
TEST(Explain, JsonOfGated) { expect_explained(with(gated, "--json"), "explain_gated.json.txt"); }

// As compile() does: its gradient is zero, which is no mistake.
TEST(Explain, AGradientOfWhatSimplificationDrops) {
  const Ran ran = run_program({"explain", "where(false, table[h], score)", "--capture",
                               "table:f32:1", "--gradient", "table"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(ran.out, HasSubstr("derivative\n  dscore = grad\n"));
}

TEST(Explain, AssemblyForAnyProcessor) {
  const auto assembly = [](const std::string& target) {
    return run_program({"explain", "--mask", "q >= kv", "--asm", "--target", target}).out;
  };
  EXPECT_THAT(assembly("haswell"),
              AllOf(HasSubstr("vfmadd"), HasSubstr("ymm"), HasSubstr("# where the mask decides")));
  EXPECT_THAT(assembly("icelake-server"), AllOf(HasSubstr("vfmadd"), HasSubstr("zmm")));
  EXPECT_THAT(assembly("aarch64"), HasSubstr("fmla"));
  EXPECT_THAT(assembly("x86-64"), HasSubstr("mulps"));
  const Ran unknown = run_program({"explain", "--asm", "--target", "z80"});
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("there is no target \"z80\""));
}

TEST(Explain, JsonIsAListOfStages) {
  const Ran ran = run_program(with(alibi, "--json"));
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::vector<std::string> stages;
  for (const Row& row : rows_of(ran.out)) {
    stages.push_back(row.texts.at("stage"));
    EXPECT_NE(row.texts.at("text"), "");
    if (stages.back() == "capture") {
      EXPECT_FALSE(row.texts.contains("hash"));
    } else {
      EXPECT_EQ(row.texts.at("hash").size(), 32U);
    }
  }
  EXPECT_THAT(stages, ElementsAre("score mod, traced", "score mod, simplified", "mask, traced",
                                  "mask, simplified", "derivative", "capture"));
}

TEST(Explain, OptionsMayStandBeforeTheScore) {
  const Ran before = run_program({"explain", "--capture", "slopes:f32:1", "--gradient", "slopes",
                                  "--mask", "q >= kv", "score + slopes[h]*(kv - q)"});
  EXPECT_EQ(before.exit_code, 0) << before.err;
  EXPECT_EQ(before.out, run_program(alibi).out);
}

TEST(Explain, AScoreMayBeginWithAMinusAfterTwo) {
  const Ran ran = run_program({"explain", "--mask", "-q < kv", "--", "-score"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("\n  -score\n"), HasSubstr("\n  -q < kv\n")));
}

TEST(Explain, DumpPrintsTheStagesOnStderr) {
  const Ran ran = run_program(alibi, {"TREADLE_DUMP=graph"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, golden("dump_graph_alibi.txt", ran.err));
  EXPECT_EQ(ran.out, run_program(alibi).out);
}

}  // namespace
}  // namespace treadle::cli
