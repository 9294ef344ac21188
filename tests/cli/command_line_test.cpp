// What the program says to a command line that it cannot follow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run_program.h"
#include "treadle/version.h"

namespace treadle::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CommandLine, Version) {
  const Ran ran = run_program({"--version"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out, "treadle " + std::string(version()) + "\n");
}

TEST(CommandLine, HelpNamesEverySubcommandWithAnExample) {
  const Ran ran = run_program({"--help"});
  EXPECT_EQ(ran.exit_code, 0);
  for (const std::string name : {"info", "explain", "mask", "plan", "demo"}) {
    EXPECT_THAT(ran.out, AllOf(HasSubstr("\n  " + name), HasSubstr("\n  treadle " + name)));
    const Ran more = run_program({name, "--help"});
    EXPECT_EQ(more.exit_code, 0);
    EXPECT_THAT(more.out, HasSubstr("Example:\n  treadle " + name));
  }
}

struct Mistake {
  const char* name;
  std::vector<std::string> arguments;
  const char* says;
  bool ours = true;  // a treadle::Error; else CLI11's

  friend void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }
};

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreToldAndFail) {
  const Ran ran = run_program(GetParam().arguments);
  EXPECT_THAT(ran.err, HasSubstr(GetParam().says));
  EXPECT_EQ(ran.out, "");
  if (GetParam().ours) {
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_THAT(ran.err, StartsWith("treadle: "));
  } else {
    EXPECT_GT(ran.exit_code, 100);
    EXPECT_THAT(ran.err, HasSubstr("Run with --help"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    CommandLine, Mistakes,
    ::testing::Values(
        Mistake{"NoSubcommand", {}, "A subcommand is required", false},
        Mistake{"UnknownSubcommand", {"bogus"}, "not expected: bogus", false},
        Mistake{"UnknownOption", {"info", "--bogus"}, "not expected: --bogus", false},
        Mistake{"ZeroLength", {"demo", "--length", "0"}, "--length: Value 0 not in range", false},
        Mistake{"NotANumber", {"demo", "--dim", "wide"}, "--dim", false},
        Mistake{"UnknownVariant", {"demo", "--variant", "x"}, "--variant: x not in {full", false},
        Mistake{"UnknownName",
                {"explain", "score + slops[h]", "--capture", "slopes:f32:1"},
                "parse: unknown name \"slops\"; known are score, b, h, q, kv, slopes\n"
                "  score + slops[h]\n"
                "          ^\n"},
        Mistake{"ScoreIsABool", {"explain", "q > kv"}, "a score mod returns a number"},
        Mistake{"MaskIsANumber", {"explain", "--mask", "q - kv"}, "a mask returns a bool"},
        Mistake{"MaskReadsTheScore", {"explain", "--mask", "score > 0"}, "mentions the score"},
        Mistake{"CaptureWithoutParts",
                {"explain", "--capture", "slopes"},
                "--capture \"slopes\" is not name:dtype:rank, as in slopes:f32:1"},
        Mistake{"CaptureWithUnknownType",
                {"explain", "--capture", "slopes:f31:1"},
                "has the element type \"f31\"; known are f64, f32, bf16, f16, i64"},
        Mistake{"CaptureWithBadRank",
                {"explain", "--capture", "slopes:f32:-1"},
                "has the rank \"-1\"; it must be a number from 0 to 16"},
        Mistake{"CaptureWithBadName", {"explain", "--capture", "1x:f32:1"}, "capture \"1x\""},
        Mistake{"CaptureTwice",
                {"explain", "--capture", "a:f32:1", "--capture", "a:f32:1"},
                "--capture names \"a\" twice"},
        Mistake{"GradientOfNothing", {"explain", "--gradient", "w"}, "reads no capture \"w\""},
        Mistake{"GradientOfAMask",
                {"explain", "--mask", "q < w", "--capture", "w:f32:0", "--gradient", "w"},
                "only the mask reads"},
        Mistake{"GradientOfIntegers",
                {"explain", "score * w[h]", "--capture", "w:i32:1", "--gradient", "w"},
                "only floats have gradients"}),
    [](const auto& info) { return info.param.name; });

TEST(CommandLine, AnUnknownDumpIsAnErrorForEverySubcommand) {
  for (const std::string name : {"info", "explain", "mask", "plan", "demo"}) {
    const Ran ran = run_program({name}, {"TREADLE_DUMP=graph,grpah"});
    EXPECT_EQ(ran.exit_code, 1) << name;
    EXPECT_EQ(ran.out, "") << name;
    EXPECT_THAT(ran.err,
                StartsWith("treadle: TREADLE_DUMP: unknown name 'grpah'; known are graph"));
  }
}

}  // namespace
}  // namespace treadle::cli
