// The table of machines, and how one is chosen from it.
#include "plan/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "environment.h"
#include "expect_error.h"

namespace treadle::plan {
namespace {

using test::Environment;

const std::vector<std::string> names{"x86-64",         "haswell",        "skylake-avx512",
                                     "icelake-server", "sapphirerapids", "aarch64",
                                     "neoverse-n1"};

TEST(TargetTable, EveryRowIsAMachine) {
  for (const std::string& name : names) {
    const Target target = find_target(name);
    EXPECT_EQ(target.name, name);
    EXPECT_FALSE(target.cpu.empty());
    EXPECT_FALSE(target.triple.empty());
    EXPECT_EQ(target.lanes(DType::f32), target.vector_bytes / 4);
    EXPECT_EQ(target.lanes(DType::f64), target.vector_bytes / 8);
    EXPECT_TRUE(target.registers == 16 || target.registers == 32);
    EXPECT_EQ(target.cores, 1);
    EXPECT_EQ(target.l1, 32 << 10);
  }
}

TEST(TargetTable, WidthsAndRegisters) {
  const auto shape = [](const char* name) {
    const Target target = find_target(name);
    return std::pair(target.vector_bytes, target.registers);
  };
  EXPECT_EQ(shape("x86-64"), std::pair(16, 16));
  EXPECT_EQ(shape("haswell"), std::pair(32, 16));
  EXPECT_EQ(shape("skylake-avx512"), std::pair(64, 32));
  EXPECT_EQ(shape("aarch64"), std::pair(16, 32));
  EXPECT_FALSE(find_target("x86-64").fma);
  EXPECT_TRUE(find_target("haswell").fma);
  EXPECT_FALSE(find_target("haswell").scale);
  EXPECT_TRUE(find_target("skylake-avx512").scale);
}

TEST(TargetTable, UnknownName) {
  EXPECT_ERROR(find_target("pentium"),
               "target: there is no target \"pentium\"; there are x86-64, haswell, skylake-avx512, "
               "icelake-server, sapphirerapids, aarch64, neoverse-n1");
  EXPECT_ERROR(find_target(""),
               "target: there is no target \"\"; there are x86-64, haswell, skylake-avx512, "
               "icelake-server, sapphirerapids, aarch64, neoverse-n1");
}

TEST(HostTarget, IsTheLastThatRunsHere) {
  const Environment none("TREADLE_TARGET", nullptr);
  const std::vector<std::string> runnable = runnable_targets();
  ASSERT_FALSE(runnable.empty());
  EXPECT_THAT(names, testing::IsSupersetOf(runnable));
  EXPECT_EQ(host_target().name, runnable.back());
  EXPECT_GE(host_target().cores, 1);
  EXPECT_GE(host_target().l2, host_target().l1);
  const Environment empty("TREADLE_TARGET", "");
  EXPECT_EQ(host_target().name, runnable.back());
}

TEST(HostTarget, IsTheOneThatIsAskedFor) {
  const Target here = [] {
    const Environment none("TREADLE_TARGET", nullptr);
    return host_target();
  }();
  for (const std::string& name : runnable_targets()) {
    const Environment asked("TREADLE_TARGET", name.c_str());
    const Target target = host_target();
    EXPECT_EQ(target.name, name);
    EXPECT_EQ(target.vector_bytes, find_target(name).vector_bytes);
    EXPECT_EQ(target.cores, here.cores);  // of this machine all the same
    EXPECT_EQ(target.l2, here.l2);
  }
}

TEST(HostTarget, RefusesWhatItCannotRun) {
  std::string known;
  for (const std::string& name : runnable_targets()) known += (known.empty() ? "" : ", ") + name;
  for (const std::string& name : names) {
    if (testing::Matches(testing::Contains(name))(runnable_targets())) continue;
    const Environment asked("TREADLE_TARGET", name.c_str());
    EXPECT_ERROR(host_target(), "target: TREADLE_TARGET is \"" + name +
                                    "\", which this processor cannot run; it runs " + known);
  }
  const Environment asked("TREADLE_TARGET", "Haswell");
  EXPECT_ERROR(host_target(),
               "target: there is no target \"Haswell\"; there are x86-64, haswell, skylake-avx512, "
               "icelake-server, sapphirerapids, aarch64, neoverse-n1");
}

TEST(TargetHash, TellsCodeApartAndNotMachines) {
  std::set<base::Hash> hashes;
  for (const std::string& name : names) hashes.insert(hash(find_target(name)));
  EXPECT_EQ(hashes.size(), names.size());
  Target target = find_target("haswell");
  const base::Hash before = hash(target);
  target.cores = 64;
  EXPECT_EQ(hash(target), before);
  target.registers = 8;
  EXPECT_NE(hash(target), before);
}

TEST(TargetText, ForPeople) {
  Target target = find_target("haswell");
  target.cores = 6;
  EXPECT_EQ(to_text(target),
            "haswell: 32-byte vectors, 16 registers, fma, half, L1 32 KiB, L2 512 KiB, 6 cores");
  EXPECT_EQ(to_text(find_target("x86-64")),
            "x86-64: 16-byte vectors, 16 registers, L1 32 KiB, L2 512 KiB, 1 cores");
  EXPECT_EQ(to_text(find_target("skylake-avx512")),
            "skylake-avx512: 64-byte vectors, 32 registers, fma, half, scale, L1 32 KiB, L2 512 "
            "KiB, 1 cores");
}

}  // namespace
}  // namespace treadle::plan
