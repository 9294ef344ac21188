#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "json_rows.h"
#include "run_program.h"

namespace treadle::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Times differ from run to run.
std::string without_time(const std::string& text) {
  return std::regex_replace(text, std::regex("built in [0-9.e+-]+ ms"), "built in TIME ms");
}

void expect_drawn(const std::vector<std::string>& arguments, const std::string& file) {
  const Ran ran = run_program(arguments);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
  const std::string out = without_time(ran.out);
  EXPECT_EQ(out, golden(file, out));
}

TEST(Mask, Window) {
  expect_drawn({"mask", "q >= kv && q - kv < 256", "--q", "1024", "--tile", "48"},
               "mask_window.txt");
}

TEST(Mask, PatternAndTextTogether) {
  expect_drawn({"mask", "q >= kv", "--pattern", "documents", "--param", "lengths=3,5,4", "--q",
                "12", "--tile", "4"},
               "mask_documents.txt");
}

TEST(Mask, Residues) {
  expect_drawn({"mask", "--pattern", "strided", "--param", "stride=128", "--q", "2048", "--order",
                "residue:128", "--tile", "16"},
               "mask_strided.txt");
}

// Each term of the mask in shades of its own, and the work of its pass.
TEST(Mask, Passes) {
  expect_drawn({"mask", "q >= kv && (q - kv < 128 || (q - kv) % 128 == 0)", "--q", "4096"},
               "mask_passes.txt");
}

TEST(Mask, PassesTogetherShowWhatTheMaskShows) {
  const std::string text =
      "q >= kv && (kv % 128 >= 112 || q // 128 == kv // 128 || (q - kv) % 9 == 0)";
  const auto row = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line{"mask", text, "--q", "600", "--kv", "500", "--json"};
    line.insert(line.end(), more.begin(), more.end());
    const Ran ran = run_program(line);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return rows_of(ran.out).at(0);
  };
  const Row several = row({}), one = row({"--order", "identity"});
  EXPECT_EQ(several.numbers.at("terms"), 3);
  EXPECT_EQ(several.numbers.at("passes"), 2);  // two terms have the same tiles
  EXPECT_EQ(one.numbers.at("passes"), 1);
  EXPECT_NEAR(several.numbers.at("visible"), one.numbers.at("visible"), 1e-12);
  EXPECT_LT(several.numbers.at("runs"), one.numbers.at("runs"));
  for (const Row& each : {several, one}) {
    EXPECT_NEAR(each.numbers.at("useful"), each.numbers.at("visible") / each.numbers.at("runs"),
                1e-12);
  }
}

TEST(Mask, ListOfPatterns) { expect_drawn({"mask", "--list"}, "mask_list.txt"); }

TEST(Mask, EveryPatternOfTheListCanBeDrawn) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> given{
      {"causal", {}},
      {"causal_lower_right", {}},
      {"local", {"window=9"}},
      {"strided", {"stride=8"}},
      {"fixed", {"window=32", "size=8"}},
      {"conv", {"height=8", "width=8", "filter_height=3", "filter_width=3"}},
      {"deconv", {"height=8", "width=8", "filter_height=3", "filter_width=3"}},
      {"sliding_window", {"window=9", "sinks=2"}},
      {"dilated_window", {"window=5"}},
      {"longformer", {"reach=3", "global=0,17"}},
      {"bigbird", {"block_size=8", "seed=5"}},
      {"neighborhood", {"length=8,8", "window=3"}},
      {"block_diagonal", {"size=16"}},
      {"documents", {"lengths=16*4"}},
      {"jagged", {"query_ends=0,30,64", "causal=1"}},
      {"prefix_lm", {"lengths=20"}},
      {"tree", {"parents=-1,0*63"}}};
  std::vector<std::string> names;
  for (const Row& row : rows_of(run_program({"mask", "--list", "--json"}).out)) {
    names.push_back(row.texts.at("pattern"));
  }
  ASSERT_EQ(names.size(), given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(names[i], given[i].first);
    std::vector<std::string> arguments{"mask", "--pattern", names[i], "--q", "64", "--json"};
    for (const std::string& parameter : given[i].second) {
      arguments.insert(arguments.end(), {"--param", parameter});
    }
    const Ran ran = run_program(arguments);
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const Row row = rows_of(ran.out).at(0);
    EXPECT_GT(row.numbers.at("visible"), 0.0) << names[i];
    EXPECT_LE(row.numbers.at("visible"), row.numbers.at("runs")) << names[i];
  }
}

TEST(Mask, CapturesHaveValues) {
  const auto visible = [](const std::vector<std::string>& captures, const std::string& text) {
    std::vector<std::string> arguments{"mask", text, "--q", "4", "--json"};
    for (const std::string& capture : captures) {
      arguments.insert(arguments.end(), {"--capture", capture});
    }
    const Ran ran = run_program(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.exit_code == 0 ? 16 * rows_of(ran.out).at(0).numbers.at("visible") : -1;
  };
  EXPECT_EQ(visible({"ids:i32=0,0,1,1"}, "ids[q] == ids[kv]"), 8);
  EXPECT_EQ(visible({"ids:i64=0*3,7"}, "ids[q] == ids[kv]"), 10);
  EXPECT_EQ(visible({"size:i64=2"}, "abs(q - kv) < size"), 10);
  EXPECT_EQ(visible({"x:f32:2x2=0.5,1,-1,2"}, "x[q % 2, kv % 2] > 0.75"), 8);
  EXPECT_EQ(visible({"one:bool:1=1"}, "one[0]"), 16);
  const auto file = std::filesystem::path(::testing::TempDir()) / "treadle_ids.txt";
  std::ofstream(file) << "1\n1\n2\n3\n";
  EXPECT_EQ(visible({"ids:i32=@" + file.string()}, "ids[q] == ids[kv]"), 6);
  std::filesystem::remove(file);
}

TEST(Mask, BatchAndHead) {
  const Ran ran = run_program({"mask", "kv < 2 * b + h", "--q", "2", "--kv", "10", "--batch", "3",
                               "--head", "1", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(rows_of(ran.out).at(0).numbers.at("visible"), 0.7);
}

TEST(Mask, WritesPictures) {
  for (const auto& [name, start] :
       {std::pair("treadle_mask.png", "\x89PNG"), std::pair("treadle_mask.svg", "<svg ")}) {
    const auto path = std::filesystem::path(::testing::TempDir()) / name;
    const Ran ran = run_program({"mask", "q >= kv", "--q", "100", "-o", path.string()});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    std::ifstream file(path, std::ios::binary);
    EXPECT_THAT(std::string(std::istreambuf_iterator<char>(file), {}), StartsWith(start));
    std::filesystem::remove(path);
  }
}

TEST(Mask, DumpPrintsTheLayout) {
  const Ran ran =
      run_program({"mask", "q >= kv", "--q", "20", "--tile", "8"}, {"TREADLE_DUMP=layout"});
  EXPECT_THAT(ran.err, HasSubstr("tile 1, 8 queries from 8 in steps of 1: [0, 9) full [9, 16) "
                                 "partial\n"));
}

TEST(Mask, DumpPrintsWhyTilesAreAsTheyAre) {
  const Ran ran =
      run_program({"mask", "q >= kv && (q - kv < 16 || (q - kv) % 16 == 0)", "--q", "64", "--json"},
                  {"TREADLE_DUMP=plan"});
  EXPECT_EQ(ran.err, golden("dump_plan_mask.txt", ran.err));
}

// A mask that fails at a pair fails here as it does in a call, and no picture is written.
TEST(Mask, ReadsOutsideACaptureAreErrors) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "treadle_outside.png";
  std::filesystem::remove(path);
  const Ran ran = run_program({"mask", "ids[q] == ids[kv]", "--capture", "ids:i32=0*100", "--q",
                               "256", "-o", path.string()});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err,
            "treadle: mask: ids: index 100 along dimension 0 is outside its length 100, at (b 0, h "
            "0, q 0, kv 100)\n");
  EXPECT_FALSE(std::filesystem::exists(path));

  const Ran head = run_program({"mask", "kv < ends[h]", "--capture", "ends:i32=7,7", "--q", "16",
                                "--head", "2", "--batch", "5", "--json"});
  EXPECT_EQ(head.exit_code, 1);
  EXPECT_THAT(head.err, HasSubstr("outside its length 2, at (b 5, h 2, q 0, kv 0)"));

  const Ran terms = run_program({"mask", "q - kv < 8 && ids[q] == 0 || (q - kv) % 8 == 0",
                                 "--capture", "ids:i32=0*100", "--q", "256"});
  EXPECT_EQ(terms.exit_code, 1);
  EXPECT_THAT(terms.err, HasSubstr("ids: index 100 along dimension 0 is outside its length 100"));
}

TEST(Mask, ReadsOutsideACaptureThatDecideNothingAreNone) {
  for (const char* text :
       {"q < 100 && kv < 100 && ids[q] == ids[kv]", "ids[min(q, 99)] == ids[min(kv, 99)]"}) {
    const Ran ran =
        run_program({"mask", text, "--capture", "ids:i32=0*100", "--q", "256", "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
  }
}

// What `treadle mask` says to a command line that makes no sense.
TEST(Mask, Mistakes) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> mistakes{
      {{}, "mask: neither a mask nor a --pattern is given"},
      {{"q >= kv"}, "mask: --q, the number of queries, is needed"},
      {{"q + kv", "--q", "4"}, "a mask returns a bool"},
      {{"q >= kv", "--q", "4", "-o", "x.jpg"}, "picture: \"x.jpg\" ends in \".jpg\""},
      {{"q >= kv", "--q", "4", "-o", "/none/x.png"}, "picture: cannot write \"/none/x.png\": No "},
      {{"q >= kv", "--q", "4", "--param", "a=1"}, "--param \"a=1\" is given without --pattern"},
      {{"q >= kv", "--q", "4", "--order", "spiral"},
       "mask: --order \"spiral\" is not an order; known are identity, residue:S, blocks:S, rect:"},
      {{"q >= kv", "--q", "4", "--order", "residue:x"},
       "mask: --order \"residue:x\": \"x\" is not a whole number"},
      {{"q >= kv", "--q", "4", "--order", "residue:0"}, "layout: an order by 0; it must be"},
      {{"q >= kv", "--q", "4", "--order", "rect:2:9x9", "--tile", "16"},
       "layout: rectangles of 9 x 9; they must hold 1 to 16 queries"},
      {{"q >= kv", "--q", "4", "--order", "auto", "--tile", "16"}, "leave --tile 16 out"},
      {{"--pattern", "spiral", "--q", "4"}, "mask: there is no pattern \"spiral\""},
      {{"--pattern", "local", "--q", "4"}, "mask: pattern local needs --param window=..."},
      {{"--pattern", "local", "--q", "4", "--param", "window"}, "is not name=numbers"},
      {{"--pattern", "local", "--q", "4", "--param", "window=1,2"}, "2 numbers for window"},
      {{"--pattern", "local", "--q", "4", "--param", "window=x"}, "\"x\" is not a whole number"},
      {{"--pattern", "causal", "--q", "4", "--param", "w=1"}, "no parameter w; it takes: none"},
      {{"a[q] > 0", "--q", "4", "--capture", "a"}, "--capture \"a\" is not name:dtype=values"},
      {{"a[q] > 0", "--q", "4", "--capture", "a:i33=1"}, "has the element type \"i33\""},
      {{"a[q] > 0", "--q", "4", "--capture", "a:i32=1,x"}, "\"x\" is not a whole number"},
      {{"a[q] > 0", "--q", "4", "--capture", "a:i32:3=1,2"}, "2 values for the shape [3]"},
      {{"a[q] > 0", "--q", "4", "--capture", "a:i32=@/none"}, "cannot read \"/none\""},
      {{"a > 0", "--q", "4", "--capture", "a:i32=1", "--capture", "a:i32=2"}, "\"a\" twice"}};
  for (const auto& [arguments, says] : mistakes) {
    std::vector<std::string> line{"mask"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    const Ran ran = run_program(line);
    EXPECT_EQ(ran.exit_code, 1) << says;
    EXPECT_EQ(ran.out, "") << says;
    EXPECT_THAT(ran.err, StartsWith("treadle: "));
    EXPECT_THAT(ran.err, HasSubstr(says));
  }
}

}  // namespace
}  // namespace treadle::cli
