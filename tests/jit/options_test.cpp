#include <gtest/gtest.h>

#include "environment.h"
#include "expect_error.h"
#include "jit/engine.h"

namespace treadle::jit {
namespace {

using test::Environment;

// Starts from an environment that says nothing.
class Options : public testing::Test {
  Environment folder{"TREADLE_CACHE_DIR", nullptr}, jit{"TREADLE_JIT", nullptr},
      sanitize{"TREADLE_SANITIZE", nullptr}, xdg{"XDG_CACHE_HOME", nullptr}, home{"HOME", nullptr};
};

TEST_F(Options, CacheFolderFollowsXdg) {
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "");
  const Environment home("HOME", "/home/weaver");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "/home/weaver/.cache/treadle");
  const Environment relative("XDG_CACHE_HOME", "caches");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "/home/weaver/.cache/treadle");
  const Environment xdg("XDG_CACHE_HOME", "/caches");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "/caches/treadle");
  const Environment own("TREADLE_CACHE_DIR", "here");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "here");
  const Environment none("TREADLE_CACHE_DIR", "");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "");
}

TEST_F(Options, ToolsAreNamed) {
  EXPECT_FALSE(EngineOptions::from_environment().perf);
  EXPECT_FALSE(EngineOptions::from_environment().gdb);
  const Environment one("TREADLE_JIT", "gdb");
  EXPECT_FALSE(EngineOptions::from_environment().perf);
  EXPECT_TRUE(EngineOptions::from_environment().gdb);
  const Environment both("TREADLE_JIT", "perf,, gdb ");
  EXPECT_TRUE(EngineOptions::from_environment().perf);
  EXPECT_TRUE(EngineOptions::from_environment().gdb);
  const Environment wrong("TREADLE_JIT", "perf,vtune");
  EXPECT_ERROR(EngineOptions::from_environment(),
               "TREADLE_JIT: unknown name 'vtune'; known are perf, gdb");
}

TEST_F(Options, SanitizerIsNamed) {
  EXPECT_FALSE(EngineOptions::from_environment().address_sanitizer);
  const Environment address("TREADLE_SANITIZE", "address");
  EXPECT_TRUE(EngineOptions::from_environment().address_sanitizer);
  const Environment wrong("TREADLE_SANITIZE", "thread");
  EXPECT_ERROR(EngineOptions::from_environment(),
               "TREADLE_SANITIZE: unknown name 'thread'; known is address");
}

}  // namespace
}  // namespace treadle::jit
