#include "base/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "environment.h"
#include "treadle/error.h"

namespace treadle::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// TREADLE_DUMP for the length of a test.
class DumpTest : public ::testing::Test {
 protected:
  void set(const char* value) { asked_.emplace("TREADLE_DUMP", value); }
  void SetUp() override { set(nullptr); }

 private:
  std::optional<test::Environment> asked_;
};

TEST_F(DumpTest, NothingUnlessAsked) {
  EXPECT_FALSE(dump_wanted(Dump::graph));
  set("");
  EXPECT_FALSE(dump_wanted(Dump::graph));
}

TEST_F(DumpTest, NamesInAnyOrderWithSpaces) {
  set("plan, asm ,,graph");
  EXPECT_TRUE(dump_wanted(Dump::graph));
  EXPECT_TRUE(dump_wanted(Dump::plan));
  EXPECT_TRUE(dump_wanted(Dump::assembly));
  EXPECT_FALSE(dump_wanted(Dump::layout));
  EXPECT_FALSE(dump_wanted(Dump::time));
  set("layout,ir,time");
  EXPECT_TRUE(dump_wanted(Dump::layout) && dump_wanted(Dump::ir) && dump_wanted(Dump::time));
  EXPECT_FALSE(dump_wanted(Dump::graph));
}

TEST_F(DumpTest, UnknownNamesAreTheUsersError) {
  set("graph,assembly");
  try {
    (void)dump_wanted(Dump::graph);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("'assembly'"), HasSubstr("graph, layout, plan, ir, asm, time")));
  }
}

// getenv() beside a setenv() of another thread is a race.
TEST_F(DumpTest, TheEnvironmentIsReadOnce) {
  set("graph");
  EXPECT_TRUE(dump_wanted(Dump::graph));
  setenv("TREADLE_DUMP", "plan", 1);
  EXPECT_TRUE(dump_wanted(Dump::graph));
  EXPECT_FALSE(dump_wanted(Dump::plan));
  set("ir");
  EXPECT_TRUE(dump_wanted(Dump::ir));
}

TEST_F(DumpTest, EndsWithOneNewline) {
  testing::internal::CaptureStderr();
  dump(Dump::assembly, "forward", "ret");
  dump(Dump::graph, "mask", "q >= kv\n");
  dump(Dump::time, "empty", "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "== asm: forward\nret\n== graph: mask\nq >= kv\n== time: empty\n\n");
}

TEST_F(DumpTest, ThreadsDoNotInterleave) {
  const std::string text(3000, 'x');
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) dump(Dump::plan, "t", text);
    });
  }
  for (auto& thread : threads) thread.join();
  std::string all;
  for (int i = 0; i < 80; ++i) all += "== plan: t\n" + text + "\n";
  EXPECT_TRUE(testing::internal::GetCapturedStderr() == all);
}

}  // namespace
}  // namespace treadle::base
