#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iomanip>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "json_rows.h"
#include "run_program.h"

namespace treadle::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Small enough for sanitizers, large enough that prefixes, documents and groups of heads are more
// than one.
std::vector<std::string> tiny(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"demo", "--batch", "2", "--heads",   "4", "--length",
                                     "16",   "--dim",   "8", "--threads", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The rows by variant and pass: "causal forward".
std::map<std::string, Row> passes_of(const Ran& ran) {
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  std::map<std::string, Row> rows;
  for (const Row& row : rows_of(ran.out))
    rows[row.texts.at("variant") + " " + row.texts.at("pass")] = row;
  return rows;
}

TEST(Demo, EveryPassIsRightAndComplete) {
  const std::map<std::string, Row> rows = passes_of(run_program(tiny({"--json"})));
  EXPECT_EQ(rows.size(), 2 * 10 + 1U) << "ten variants forward and backward, and decode";
  for (const auto& [name, row] : rows) {
    SCOPED_TRACE(name);
    const bool decode = name == "decode decode", sparse = name.starts_with("sparse ");
    EXPECT_TRUE(row.texts.contains("what"));
    EXPECT_GT(row.numbers.at("visible"), 0);
    EXPECT_LE(row.numbers.at("visible"), 1);
    EXPECT_GT(row.numbers.at("ms"), 0);
    EXPECT_GE(row.numbers.at("compile_ms"), 0);
    EXPECT_GT(row.numbers.at("share"), 0);
    EXPECT_TRUE(row.numbers.contains("steady"));
    EXPECT_GT(row.numbers.at("dense_ms"), 0);
    EXPECT_LT(row.numbers.at("largest_error"), 1e-4);
    EXPECT_EQ(row.texts.at("worst") == "out", decode || row.texts.at("pass") == "forward");
    EXPECT_EQ(row.numbers.at("batch"), 2);
    EXPECT_EQ(row.numbers.at("heads"), sparse ? 1 : 4);
    EXPECT_EQ(row.numbers.at("key_heads"), sparse || name.starts_with("gqa ") ? 1 : 4);
    EXPECT_EQ(row.numbers.at("queries"), decode ? 1 : sparse ? 8 * 16 : 16);
    EXPECT_EQ(row.numbers.at("keys"), decode ? 16 * 16 : sparse ? 8 * 16 : 16);
    EXPECT_EQ(row.numbers.at("dim"), 8);
    EXPECT_EQ(row.numbers.at("threads"), 2);
  }
}

TEST(Demo, VisibleCountsPairs) {
  const std::map<std::string, Row> rows = passes_of(run_program(tiny({"--json"})));
  const auto pairs = [&](const std::string& name) {
    return rows.at(name + " forward").numbers.at("visible") * 16 * 16;
  };
  EXPECT_EQ(pairs("full"), 16 * 16);
  EXPECT_EQ(pairs("causal"), 16 * 17 / 2);
  EXPECT_EQ(pairs("document"), 1 * 1 + 2 * 2 + 3 * 3 + 4 * 4 + 5 * 5 + 1 * 1);
  EXPECT_EQ(pairs("prefix"), 16 * 17 / 2 + 3 + 2 + 1);  // the first queries also see the rest of 4
}

TEST(Demo, ResultsDoNotDependOnThreads) {
  const auto error = [](const char* threads) {
    const Ran ran = run_program({"demo", "--heads", "2", "--length", "24", "--dim", "8",
                                 "--threads", threads, "--variant", "relative", "--json"});
    return passes_of(ran).at("relative backward").numbers.at("largest_error");
  };
  EXPECT_EQ(error("1"), error("3"));
}

TEST(Demo, QueriesAndKeysMayDiffer) {
  const std::map<std::string, Row> rows =
      passes_of(run_program(tiny({"--queries", "5", "--json"})));
  EXPECT_EQ(rows.at("full forward").numbers.at("queries"), 5);
  EXPECT_EQ(rows.at("full forward").numbers.at("keys"), 16);
}

TEST(Demo, TextIsATableOfTheChosenVariants) {
  const Ran ran = run_program(tiny({"--variant", "gqa", "--variant", "causal"}));
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "") << "no progress where there is no terminal";
  EXPECT_THAT(ran.out, StartsWith("f32, batch 2, heads 4, queries 16, keys 16, dim 8, 2 threads"));
  EXPECT_THAT(ran.out, ContainsRegex("\nvariant +mask +visible +pass +ms +of peak +dense ms "
                                     "+compile ms +error\n"));
  EXPECT_THAT(ran.out, ContainsRegex("\ncausal +⣷⣄⠀⠀ +53.1 %  forward "));
  EXPECT_THAT(ran.out, ContainsRegex("\n  a query sees its past +⣿⣿⣷⣄ +backward "));
  EXPECT_THAT(ran.out, HasSubstr("\ngqa "));
  EXPECT_THAT(ran.out, HasSubstr("\nNext, draw a mask of your own:  treadle mask "));
  EXPECT_EQ(ran.out.find("\nfull"), std::string::npos);
}

TEST(Demo, ThumbnailsShowMasks) {
  // Its queries are few, and so are their rows of dots.
  const Ran decode = run_program(tiny({"--variant", "decode"}));
  EXPECT_THAT(decode.out, ContainsRegex("\ndecode +⠉⠉⠉⠉ +100.0 %  decode "));
  EXPECT_THAT(decode.out, HasSubstr("\n  one token and its cache, 0.25k"));
  // Less than a quarter of every part is visible: every other dot.
  const Ran sparse =
      run_program({"demo", "--heads", "4", "--length", "512", "--dim", "8", "--variant", "sparse"});
  EXPECT_EQ(sparse.exit_code, 0) << sparse.err;
  EXPECT_THAT(sparse.out, HasSubstr("latest 128 and every 128th, 4k"));
  EXPECT_THAT(sparse.out, HasSubstr("⢕"));
}

// "mask "q >= kv" --q 8" -> mask, q >= kv, --q, 8
std::vector<std::string> arguments_of(const std::string& command) {
  std::vector<std::string> arguments;
  std::istringstream words(command);
  for (std::string word; words >> std::quoted(word);) arguments.push_back(word);
  return arguments;
}

TEST(Demo, ItsNextStepsWork) {
  const Ran demo = run_program(tiny({"--variant", "causal"}));
  std::istringstream lines(demo.out.substr(demo.out.find("\nNext, ")));
  int commands = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("  treadle ");
    if (at == std::string::npos) continue;
    const Ran ran = run_program(arguments_of(line.substr(at + 10)));
    EXPECT_EQ(ran.exit_code, 0) << line << "\n" << ran.err;
    ++commands;
  }
  EXPECT_EQ(commands, 2);
}

TEST(Demo, TooLargeAnErrorFails) {
  const Ran ran = run_program(tiny({"--variant", "full", "--tolerance", "0", "--json"}));
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, AllOf(StartsWith("treadle: demo: full: "), HasSubstr(" has an error of ")));
  EXPECT_EQ(rows_of(ran.out).size(), 2U) << "the table is printed all the same";
}

TEST(Demo, DumpShowsWhatWasCompiled) {
  const Ran ran = run_program(tiny({"--variant", "causal"}), {"TREADLE_DUMP=graph"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.err, HasSubstr("== graph: mask, simplified\nq >= kv\n"));
}

}  // namespace
}  // namespace treadle::cli
