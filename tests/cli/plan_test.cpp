#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "json_rows.h"
#include "run_program.h"

namespace treadle::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Row> candidates(std::vector<std::string> more) {
  std::vector<std::string> line{"plan", "q >= kv", "--json"};
  line.insert(line.end(), more.begin(), more.end());
  const Ran ran = run_program(line);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  return rows_of(ran.out);
}

TEST(Plan, SaysWhatWasLookedAtAndTaken) {
  const Ran ran = run_program(
      {"plan", "q >= kv", "--q", "16384", "--heads", "8/4", "--dim", "64", "--ranks", "4"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("q >= kv\n16384 queries x 16384 keys, 1 sequence, heads 8/4 of "
                                  "64, bf16, 4 ranks\n\nhead groups  route"));
  EXPECT_THAT(ran.out, AllOf(HasSubstr("transport"), HasSubstr("stream"), HasSubstr("\ntaken: "),
                             HasSubstr(" of an all-gather forward, "), HasSubstr(" messages"),
                             HasSubstr(" memory MB ")));
}

TEST(Plan, TellsPrograms) {
  const std::vector<Row> rows =
      candidates({"--q", "16384", "--kv", "20000", "--heads", "8/4", "--ranks", "8"});
  // 1, 2 and 4 head groups, two ways each.
  ASSERT_EQ(rows.size(), 6U);
  for (const Row& row : rows) {
    EXPECT_EQ(row.numbers.at("queries"), 16384);
    EXPECT_EQ(row.numbers.at("keys"), 20000);
    EXPECT_EQ(row.numbers.at("ranks"), 8);
    EXPECT_GE(row.numbers.at("balance"), 1);
    EXPECT_LE(row.numbers.at("balance"), 1.04);
    EXPECT_GT(row.numbers.at("forward_bytes"), 0);
    EXPECT_GT(row.numbers.at("memory"), 0);
    EXPECT_EQ(row.numbers.at("all_gather_bytes"), 20000.0 * 4 * 2 * 128 * 2);
    EXPECT_NEAR(row.numbers.at("forward_share"),
                row.numbers.at("forward_bytes") / row.numbers.at("all_gather_bytes"), 1e-9);
  }
}

TEST(Plan, OptionsCount) {
  const auto taken = [](std::vector<std::string> more) {
    std::vector<std::string> line{"--q", "16384", "--heads", "4", "--ranks", "4"};
    line.insert(line.end(), more.begin(), more.end());
    return candidates(line).at(0);
  };
  const Row usual = taken({});
  EXPECT_EQ(taken({"--head-groups", "2"}).numbers.at("head_groups"), 2);
  EXPECT_EQ(taken({"--dtype", "f32"}).numbers.at("all_gather_bytes"),
            2 * usual.numbers.at("all_gather_bytes"));
  EXPECT_EQ(taken({"--dim", "64"}).numbers.at("all_gather_bytes"),
            usual.numbers.at("all_gather_bytes") / 2);
  EXPECT_GT(taken({"--teraflops", "0.01"}).numbers.at("forward_ms"),
            usual.numbers.at("forward_ms"));
  EXPECT_GT(taken({"--gigabits", "0.01"}).numbers.at("forward_ms"), usual.numbers.at("forward_ms"));
  EXPECT_EQ(taken({"--batch", "3"}).numbers.at("all_gather_bytes"),
            3 * usual.numbers.at("all_gather_bytes"));
}

TEST(Plan, OneRankSendsNothing) {
  const std::vector<Row> rows = candidates({"--q", "5000", "--ranks", "1"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].numbers.at("balance"), 1);
  EXPECT_EQ(rows[0].numbers.at("forward_bytes"), 0);
  EXPECT_EQ(rows[0].numbers.at("backward_bytes"), 0);
  EXPECT_EQ(rows[0].numbers.at("messages"), 0);
}

TEST(Plan, PatternsAndCaptures) {
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"--pattern", "local", "--param", "window=500"},
        {"q >= kv && ids[q] == ids[kv]", "--capture", "ids:i32=0*1000,1*2000,2*1000"},
        {"q >= kv - b * 100 - h"}}) {
    std::vector<std::string> whole{"plan", "--q", "4000", "--ranks", "3", "--batch", "2", "--json"};
    whole.insert(whole.end(), line.begin(), line.end());
    const Ran ran = run_program(whole);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_GE(rows_of(ran.out).at(0).numbers.at("balance"), 1);
  }
}

TEST(Plan, WritesPictures) {
  for (const auto& [name, start] :
       {std::pair("treadle_plan.png", "\x89PNG"), std::pair("treadle_plan.svg", "<svg ")}) {
    const auto path = std::filesystem::path(::testing::TempDir()) / name;
    const Ran ran = run_program({"plan", "q >= kv && (q - kv < 128 || (q - kv) % 128 == 0)", "--q",
                                 "3000", "--kv", "2000", "--ranks", "4", "-o", path.string()});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_THAT(text, StartsWith(start));
    if (std::string(name).ends_with("svg")) {
      EXPECT_THAT(text, AllOf(HasSubstr("4 ranks, balance "), HasSubstr("light: queries of")));
    }
    std::filesystem::remove(path);
  }
}

TEST(Plan, Mistakes) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> mistakes{
      {{"--q", "4"}, "plan: neither a mask nor a --pattern is given"},
      {{"q >= kv"}, "plan: --q, the number of queries, is needed"},
      {{"q >= kv", "--q", "4", "--param", "a=1"}, "--param \"a=1\" is given without --pattern"},
      {{"q + kv", "--q", "4"}, "a mask returns a bool"},
      {{"q >= kv", "--q", "4", "--heads", "6/4"}, "--heads \"6/4\": 6 is not a multiple of 4"},
      {{"q >= kv", "--q", "4", "--heads", "x/4"}, "\"x\" is not a whole number"},
      {{"q >= kv", "--q", "4", "--heads", "0"}, "0 is not a multiple of 0"},
      {{"q >= kv", "--q", "4", "--dtype", "bf17"}, "--dtype \"bf17\""},
      {{"q >= kv", "--q", "4", "--heads", "8", "--head-groups", "4"},
       "plan: 4 head groups of 8 key heads on 6 ranks; they must divide both"},
      {{"q >= kv", "--q", "4", "-o", "x.jpg"}, "picture: \"x.jpg\" ends in \".jpg\""}};
  for (const auto& [arguments, says] : mistakes) {
    std::vector<std::string> line{"plan", "--ranks", "6"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    const Ran ran = run_program(line);
    EXPECT_EQ(ran.exit_code, 1) << says;
    EXPECT_EQ(ran.out, "") << says;
    EXPECT_THAT(ran.err, StartsWith("treadle: "));
    EXPECT_THAT(ran.err, HasSubstr(says));
  }
  const Ran ran = run_program({"plan", "q >= kv", "--q", "4"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.err, "treadle: plan: --ranks, how many there are, is needed\n");
}

}  // namespace
}  // namespace treadle::cli
