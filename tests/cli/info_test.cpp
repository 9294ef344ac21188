#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "run_program.h"
#include "treadle/version.h"

namespace treadle::cli {
namespace {

using nlohmann::json;
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
  std::map<std::string, json> facts;
  for (const json& fact : json::parse(ran.out)) {
    facts[fact.at("about").get<std::string>() + "/" + fact.at("name").get<std::string>()] =
        fact.at("value");
  }
  EXPECT_EQ(facts.at("treadle/version"), version());
  EXPECT_GE(facts.at("target/cores").get<int>(), 1);
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
