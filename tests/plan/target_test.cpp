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
}

TEST(TargetTable, FeaturesOfEachMachine) {
  for (const std::string& name : names) {
    const Target target = find_target(name);
    const bool arm = target.triple.starts_with("aarch64");
    EXPECT_EQ(target.fma, name != "x86-64") << name;
    EXPECT_EQ(target.half, name != "x86-64") << name;
    EXPECT_EQ(target.masked_loads, name != "x86-64" && !arm) << name;
    EXPECT_EQ(target.avx512, target.vector_bytes == 64) << name;
    // Where glibc has it, in vectors as wide as the machine's.
    EXPECT_TRUE(target.libmvec == 0 || target.libmvec == target.vector_bytes) << name;
    EXPECT_FALSE(arm && target.libmvec > 0) << name;
  }
}

TEST(TargetTable, UnknownName) {
  EXPECT_ERROR(find_target("pentium"),
               "target: there is no target \"pentium\"; there are x86-64, haswell, skylake-avx512, "
               "icelake-server, sapphirerapids, aarch64, neoverse-n1");
  EXPECT_ERROR(find_target(""),
               "target: there is no target \"\"; there are x86-64, haswell, skylake-avx512, "
               "icelake-server, sapphirerapids, aarch64, neoverse-n1");
}

// Those that are used only when asked for.
bool by_name_only(const std::string& name) {
  return name == "sapphirerapids" || name == "neoverse-n1";
}

TEST(HostTarget, IsTheLastByDefaultThatRunsHere) {
  const Environment none("TREADLE_TARGET", nullptr);
  std::vector<std::string> runnable = runnable_targets();
  EXPECT_THAT(names, testing::IsSupersetOf(runnable));
  std::erase_if(runnable, by_name_only);
  ASSERT_FALSE(runnable.empty());
  EXPECT_EQ(host_target().name, runnable.back());
  EXPECT_GE(host_target().cores, 1);
  EXPECT_GE(host_target().l2, host_target().l1);
  const Environment empty("TREADLE_TARGET", "");
  EXPECT_EQ(host_target().name, runnable.back());
}

#if defined(__x86_64__)
TEST(RunnableTargets, FollowFromTheProcessorsFeatures) {
  const auto runs = [](const std::string& name) {
    return testing::Matches(testing::Contains(name))(runnable_targets());
  };
  EXPECT_TRUE(runs("x86-64"));
  EXPECT_FALSE(runs("aarch64"));
  EXPECT_FALSE(runs("neoverse-n1"));
  EXPECT_EQ(runs("haswell"), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                 __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
                                 __builtin_cpu_supports("bmi2") &&
                                 __builtin_cpu_supports("lzcnt") &&
                                 __builtin_cpu_supports("movbe"));
  EXPECT_TRUE(__builtin_cpu_supports("avx512f") || !runs("skylake-avx512"));
  EXPECT_TRUE(__builtin_cpu_supports("avx512vbmi2") || !runs("icelake-server"));
  EXPECT_TRUE(__builtin_cpu_supports("avx512fp16") || !runs("sapphirerapids"));
  // GCC's own word for the processor.
  EXPECT_TRUE(runs("sapphirerapids") || !__builtin_cpu_is("sapphirerapids"));
  // Each runs the code of those before it.
  EXPECT_TRUE(runs("icelake-server") || !runs("sapphirerapids"));
  EXPECT_TRUE(runs("skylake-avx512") || !runs("icelake-server"));
  EXPECT_TRUE(runs("haswell") || !runs("skylake-avx512"));
}
#endif

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
  target.l1 = target.l2 = 1;
  EXPECT_EQ(hash(target), before);
  const auto differs = [&](auto change) {
    Target other = find_target("haswell");
    change(other);
    return hash(other) != before;
  };
  EXPECT_TRUE(differs([](Target& t) { t.registers = 8; }));
  EXPECT_TRUE(differs([](Target& t) { t.vector_bytes = 64; }));
  EXPECT_TRUE(differs([](Target& t) { t.masked_loads = false; }));
  EXPECT_TRUE(differs([](Target& t) { t.avx512 = true; }));
  EXPECT_TRUE(differs([](Target& t) { t.libmvec += 16; }));
}

TEST(TargetText, NamesWidthsFeaturesAndCaches) {
  Target target = find_target("haswell");
  target.cores = 6;
  EXPECT_EQ(to_text(target),
            "haswell: 32-byte vectors, 16 registers, fma, half, L1 32 KiB, L2 512 KiB, 6 cores");
  EXPECT_EQ(to_text(find_target("x86-64")),
            "x86-64: 16-byte vectors, 16 registers, L1 32 KiB, L2 512 KiB, 1 cores");
  EXPECT_EQ(to_text(find_target("skylake-avx512")),
            "skylake-avx512: 64-byte vectors, 32 registers, fma, half, avx512, L1 32 KiB, L2 512 "
            "KiB, 1 cores");
}

}  // namespace
}  // namespace treadle::plan
