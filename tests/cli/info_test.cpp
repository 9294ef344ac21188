#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "json_rows.h"
#include "run_program.h"
#include "treadle/version.h"

namespace treadle::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Info, TextHasOneLinePerFact) {
  const Ran ran = run_program({"info"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(ran.out, StartsWith("about    name"));
  EXPECT_THAT(ran.out, HasSubstr("treadle  version            " + std::string(version()) + "\n"));
}

TEST(Info, JsonTellsVersionsMachineAndLibraries) {
  const Ran ran = run_program({"info", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::map<std::string, std::string> facts;
  for (const Row& row : rows_of(ran.out)) {
    const std::string name = row.texts.at("about") + "/" + row.texts.at("name");
    if (name == "target/cores") {
      EXPECT_GE(row.numbers.at("value"), 1);
    } else {
      facts[name] = row.texts.at("value");
    }
  }
  EXPECT_EQ(facts.at("treadle/version"), version());
  for (const char* name :
       {"treadle/compiler", "target/architecture", "target/cpu", "target/vector extensions",
        "target/kernels", "library/fmt", "library/oneTBB", "library/LLVM", "library/xxhash",
        "library/dlpack", "library/CLI11", "library/nlohmann-json", "library/libpng"}) {
    ASSERT_TRUE(facts.contains(name)) << name;
    EXPECT_NE(facts.at(name), "") << name;
  }
}

}  // namespace
}  // namespace treadle::cli
