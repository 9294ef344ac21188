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
      sanitize{"TREADLE_SANITIZE", nullptr}, size{"TREADLE_CACHE_SIZE", nullptr},
      xdg{"XDG_CACHE_HOME", nullptr}, home{"HOME", nullptr};
};

TEST_F(Options, CacheFolderFollowsXdg) {
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "");
  const Environment home("HOME", "/home/weaver");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "/home/weaver/.cache/treadle");
  const Environment relative("XDG_CACHE_HOME", "caches");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "/home/weaver/.cache/treadle");
  const Environment xdg("XDG_CACHE_HOME", "/caches");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "/caches/treadle");
  const Environment own("TREADLE_CACHE_DIR", "/here");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "/here");
  const Environment none("TREADLE_CACHE_DIR", "");
  EXPECT_EQ(EngineOptions::from_environment().cache_folder, "");
}

TEST_F(Options, CacheFolderIsAbsolute) {
  const Environment relative("TREADLE_CACHE_DIR", "here");
  EXPECT_ERROR(EngineOptions::from_environment(),
               "TREADLE_CACHE_DIR: 'here' is not an absolute path; a relative one would be another "
               "folder wherever the program is started");
}

TEST_F(Options, CacheSizeHasAUnit) {
  const auto size = [](const char* text) {
    const Environment given("TREADLE_CACHE_SIZE", text);
    return EngineOptions::from_environment().cache_limits.bytes;
  };
  EXPECT_EQ(size(nullptr), 256 << 20);
  EXPECT_EQ(size("1000"), 1000);
  EXPECT_EQ(size("3K"), 3 << 10);
  EXPECT_EQ(size("100M"), 100 << 20);
  EXPECT_EQ(size("5G"), std::int64_t{5} << 30);
  for (const char* wrong : {"", "0", "-1", "M", "1T", "1.5G", "1MB", " 1M", "9999999999G"}) {
    EXPECT_ERROR(size(wrong),
                 "TREADLE_CACHE_SIZE: '" + std::string(wrong) +
                     "' is not a size; give a number of bytes above 0, or of K, M or G");
  }
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
