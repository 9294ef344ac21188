#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
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

// Of a processor with a name, so that the tiles are the same on every machine.
const std::vector<std::string> strided{
    "explain",  "--mask",        "q >= kv && (q - kv < 128 || (q - kv) % 128 == 0)", "--q", "5000",
    "--target", "icelake-server"};

TEST(Explain, TermsAndTheirTiles) { expect_explained(strided, "explain_terms.txt"); }

TEST(Explain, JsonHasEveryCandidate) {
  const Ran ran = run_program(with(strided, "--json"));
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::map<std::string, int> stages;
  double last_term = 0, last_cost = 0;
  for (const Row& row : rows_of(ran.out)) {
    ++stages[row.texts.at("stage")];
    if (row.texts.at("stage") != "candidate") continue;
    const double term = row.numbers.at("term"), cost = row.numbers.at("cost");
    EXPECT_TRUE(term != last_term || cost >= last_cost) << cost;
    EXPECT_GT(row.numbers.at("columns"), 0);
    EXPECT_EQ(row.texts.at("text"), row.texts.at("order") + ", tiles of " +
                                        std::to_string(static_cast<int>(row.numbers.at("tile"))));
    last_term = term;
    last_cost = cost;
  }
  EXPECT_EQ(stages["mask, term 1 of 2"], 1);
  EXPECT_EQ(stages["mask, term 2 of 2"], 1);
  EXPECT_EQ(stages["candidate"], 9);
}

// Terms follow from the numbers that scalars hold, tiles from what arrays hold.
TEST(Explain, CapturesMayHaveValues) {
  const auto explain = [](const std::string& mask, const std::vector<std::string>& more) {
    std::vector<std::string> line{"explain", "--mask", mask};
    line.insert(line.end(), more.begin(), more.end());
    return run_program(line);
  };
  const std::string text = "q - kv < size || (q - kv) % size == 0";
  EXPECT_THAT(explain(text, {"--capture", "size:i64=16"}).out, HasSubstr("mask, term 2 of 2"));
  EXPECT_THAT(explain(text, {"--capture", "size:i64:0"}).out,
              ::testing::Not(HasSubstr("mask, term 2 of 2")));
  EXPECT_THAT(explain("ids[q] == ids[kv]", {"--capture", "ids:i32=0*40,1*24", "--q", "64"}).out,
              HasSubstr("taken: "));
  const Ran missing = explain("ids[q] == ids[kv]", {"--capture", "ids:i32:1", "--q", "64"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("what ids holds; give it values"));
  const Ran alone = explain("q >= kv", {"--target", "haswell"});
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_THAT(alone.err,
              HasSubstr("--target \"haswell\" is given without --asm, --q or --kernels"));
}

// As compile() does: its gradient is zero, which is no mistake.
TEST(Explain, AGradientOfWhatSimplificationDrops) {
  const Ran ran = run_program({"explain", "where(false, table[h], score)", "--capture",
                               "table:f32:1", "--gradient", "table"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(ran.out, HasSubstr("derivative\n  dscore = grad\n"));
}

TEST(Explain, KernelsHaveSizesAndTimes) {
  const Ran ran = run_program({"explain", "score * 2", "--mask", "q >= kv", "--kernels", "--target",
                               "haswell", "--dim", "32"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("kernels\n  haswell: 32-byte vectors"));
  EXPECT_THAT(ran.out, HasSubstr("f32, dim 32, value dim 32: tiles of "));
  EXPECT_THAT(ran.out,
              ::testing::ContainsRegex("where every pair is visible +[1-9][0-9]* +[0-9]+"));
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("where the mask decides +[1-9][0-9]* +[0-9]+"));
}

TEST(Explain, APageHasAllStagesAndAPicture) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("explain-{}.html", getpid());
  std::vector<std::string> line = with(alibi, "--html");
  line.insert(line.end(), {file.string(), "--q", "256"});
  const Ran ran = run_program(line);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  std::ifstream in(file);
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  in.close();
  std::filesystem::remove(file);
  for (const char* part :
       {"<h2>given</h2>", "<h2>score mod, simplified</h2>", "<h2>mask, simplified</h2>",
        "<h2>derivative</h2>", "<h2>layout of 256 queries x 256 keys, batch 0, head 0</h2>\n<svg",
        "<h2>mask, costed for 256 queries x 256 keys</h2>", "<h2>kernels</h2>", "ms to compile",
        "q &gt;= kv", "</html>"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("src=")));  // it needs nothing but itself
}

TEST(Explain, AHeadDimIsForKernels) {
  const Ran ran = run_program({"explain", "score", "--dim", "32"});
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.err, HasSubstr("--dim requires --asm, --kernels or --html"));
}

TEST(Explain, APageThatCannotBeWritten) {
  const Ran ran = run_program({"explain", "--html", "/nowhere/page.html"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("explain: --html: /nowhere/page.html cannot be written"));
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
