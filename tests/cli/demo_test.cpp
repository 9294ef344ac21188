#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using ::testing::StartsWith;

// Small enough for sanitizers, large enough that prefixes, documents and groups of heads are more
// than one.
std::vector<std::string> tiny(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"demo", "--batch", "2", "--heads",   "4", "--length",
                                     "16",   "--dim",   "8", "--threads", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The rows by variant.
std::map<std::string, Row> variants_of(const Ran& ran) {
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  std::map<std::string, Row> rows;
  for (const Row& row : rows_of(ran.out)) rows[row.texts.at("variant")] = row;
  return rows;
}

TEST(Demo, EveryVariantIsRightAndComplete) {
  const std::map<std::string, Row> rows = variants_of(run_program(tiny({"--json"})));
  EXPECT_EQ(rows.size(), 9U);
  for (const auto& [name, row] : rows) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(row.texts.contains("what"));
    EXPECT_GT(row.numbers.at("visible"), 0);
    EXPECT_LE(row.numbers.at("visible"), 1);
    EXPECT_GT(row.numbers.at("forward_ms"), 0);
    EXPECT_GT(row.numbers.at("backward_ms"), 0);
    EXPECT_LT(row.numbers.at("largest_error"), 1e-4);
    EXPECT_TRUE(row.texts.contains("worst"));
    EXPECT_EQ(row.numbers.at("batch"), 2);
    EXPECT_EQ(row.numbers.at("heads"), 4);
    EXPECT_EQ(row.numbers.at("key_heads"), name == "gqa" ? 1 : 4);
    EXPECT_EQ(row.numbers.at("queries"), 16);
    EXPECT_EQ(row.numbers.at("keys"), 16);
    EXPECT_EQ(row.numbers.at("dim"), 8);
    EXPECT_EQ(row.numbers.at("threads"), 2);
  }
}

TEST(Demo, VisibleCountsPairs) {
  const std::map<std::string, Row> rows = variants_of(run_program(tiny({"--json"})));
  const auto pairs = [&](const char* name) {
    return rows.at(name).numbers.at("visible") * 16 * 16;
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
    return variants_of(ran).at("relative").numbers.at("largest_error");
  };
  EXPECT_EQ(error("1"), error("3"));
}

TEST(Demo, QueriesAndKeysMayDiffer) {
  const std::map<std::string, Row> rows =
      variants_of(run_program(tiny({"--queries", "5", "--json"})));
  EXPECT_EQ(rows.at("full").numbers.at("queries"), 5);
  EXPECT_EQ(rows.at("full").numbers.at("keys"), 16);
}

TEST(Demo, TextIsATableOfTheChosenVariants) {
  const Ran ran = run_program(tiny({"--variant", "gqa", "--variant", "causal"}));
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "") << "no progress where there is no terminal";
  EXPECT_THAT(ran.out, StartsWith("f32, batch 2, heads 4, queries 16, keys 16, dim 8, 2 threads"));
  EXPECT_THAT(ran.out, AllOf(HasSubstr("\nvariant  what"), HasSubstr("\ncausal   "),
                             HasSubstr("\ngqa      "), HasSubstr(" 4/1 ")));
  EXPECT_EQ(ran.out.find("\nfull"), std::string::npos);
}

TEST(Demo, TooLargeAnErrorFails) {
  const Ran ran = run_program(tiny({"--variant", "full", "--tolerance", "0", "--json"}));
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, AllOf(StartsWith("treadle: demo: full: "), HasSubstr(" has an error of ")));
  EXPECT_EQ(rows_of(ran.out).size(), 1U) << "the table is printed all the same";
}

TEST(Demo, DumpShowsWhatWasCompiled) {
  const Ran ran = run_program(tiny({"--variant", "causal"}), {"TREADLE_DUMP=graph"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.err, HasSubstr("== graph: mask, simplified\nq >= kv\n"));
}

}  // namespace
}  // namespace treadle::cli
