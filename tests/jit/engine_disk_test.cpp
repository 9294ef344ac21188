// What an engine leaves on disk and finds there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "environment.h"
#include "jit/build_id.h"
#include "jit/disk_cache.h"
#include "jit/engine.h"
#include "jit/inspect.h"
#include "kernels.h"
#include "temporary_folder.h"

namespace treadle::jit {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

const base::Hash key{.high = 5, .low = 6};

// Asks a new engine, as a new process would; how it found the kernel.
EngineStatistics ask(EngineOptions options, const plan::Target& target) {
  Engine engine(std::move(options));
  auto* squares = test::function<test::Squares>(engine, key, target,
                                                [&] { return test::squares_module(target); });
  const std::vector<float> x(64, 1.0F);
  float result = 0;
  squares(x.data(), &result, 64);
  EXPECT_EQ(result, 64.0F);
  return engine.statistics();
}
EngineStatistics ask(const std::string& folder, const plan::Target& target) {
  return ask(EngineOptions{.cache_folder = folder}, target);
}

TEST(EngineDisk, KeepsKernelsForTheNextProcess) {
  const test::TemporaryFolder folder;
  const plan::Target target = plan::host_target();
  EXPECT_EQ(ask(folder.path(), target).compiled, 1);
  const EngineStatistics again = ask(folder.path(), target);
  EXPECT_EQ(again.compiled, 0);  // so nothing was emitted either
  EXPECT_EQ(again.disk_hits, 1);
}

TEST(EngineDisk, DoesNotEmitWhatIsOnDisk) {
  const test::TemporaryFolder folder;
  const plan::Target target = plan::host_target();
  ask(folder.path(), target);
  Engine engine({.cache_folder = folder.path()});
  engine.code(key, target, []() -> emit::llvm::Module {
    ADD_FAILURE() << "emitted";
    return {};
  });
}

TEST(EngineDisk, EveryTargetHasItsOwn) {
  const test::TemporaryFolder folder;
  for (const std::string& name : plan::runnable_targets()) {
    EXPECT_EQ(ask(folder.path(), plan::find_target(name)).compiled, 1) << name;
  }
  EXPECT_EQ(folder.objects().size(), plan::runnable_targets().size());
}

TEST(EngineDisk, MakesAgainWhatIsDamaged) {
  const test::TemporaryFolder folder;
  const plan::Target target = plan::host_target();
  ask(folder.path(), target);
  std::filesystem::resize_file(folder.objects().at(0), 100);
  EXPECT_EQ(ask(folder.path(), target).compiled, 1);
  EXPECT_EQ(ask(folder.path(), target).disk_hits, 1);
}

// The object in the file of a kernel, replaced by another; key and check sum are right.
void replace_object(const std::string& folder, const std::string& object) {
  std::filesystem::path path;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".o") path = entry.path();
  }
  std::ifstream file(path, std::ios::binary);
  std::uint64_t key_bytes = 0;
  file.seekg(16).read(reinterpret_cast<char*>(&key_bytes), sizeof key_bytes);
  std::string all(key_bytes, '\0');
  file.seekg(40).read(all.data(), static_cast<std::streamsize>(key_bytes));
  const base::Key key(all);
  ASSERT_EQ(path.filename(), cache_file_name(key));
  DiskCache(folder).write(key, object);
  ASSERT_EQ(DiskCache(folder).read(key), object);
}

TEST(EngineDisk, MakesAgainWhatDoesNotLoad) {
  const plan::Target target = plan::host_target();
  const std::string good = object_of(test::squares_module(target), target);
  const std::string other_name = [&] {
    emit::llvm::Module module = test::squares_module(target);
    module.module->getFunction("kernel")->setName("colonel");
    return object_of(std::move(module), target);
  }();
  for (const std::string& object :
       {std::string(), std::string("garbage"), std::string(5000, '\x7f'), good.substr(0, 100),
        good.substr(0, good.size() / 2), other_name,
        object_of(test::call_module(target, "no_such_function", 1), target)}) {
    const test::TemporaryFolder folder;
    ask(folder.path(), target);
    replace_object(folder.path(), object);
    const EngineStatistics again = ask(folder.path(), target);
    EXPECT_EQ(again.compiled, 1) << object.size() << " bytes";
    EXPECT_EQ(again.disk_hits, 0);
    EXPECT_EQ(ask(folder.path(), target).disk_hits, 1);
  }
}

TEST(EngineDisk, KeepsNothingWithoutABuildId) {
  const test::TemporaryFolder folder;
  const plan::Target target = plan::host_target();
  EXPECT_EQ(ask(EngineOptions{.cache_folder = folder.path(), .build = ""}, target).compiled, 1);
  EXPECT_TRUE(folder.files().empty());
}

TEST(EngineDisk, BuildsDoNotShare) {
  const test::TemporaryFolder folder;
  const plan::Target target = plan::host_target();
  EXPECT_EQ(ask(EngineOptions{.cache_folder = folder.path(), .build = "one"}, target).compiled, 1);
  EXPECT_EQ(ask(EngineOptions{.cache_folder = folder.path(), .build = "two"}, target).compiled, 1);
  EXPECT_EQ(ask(EngineOptions{.cache_folder = folder.path(), .build = "one"}, target).disk_hits, 1);
}

TEST(EngineDisk, NeedsNoFolder) {
  const plan::Target target = plan::host_target();
  EXPECT_EQ(ask("", target).compiled, 1);
  EXPECT_EQ(ask("/proc/treadle", target).compiled, 1);
}

TEST(EngineDisk, TellsBuildsApart) { EXPECT_FALSE(build_id().empty()); }

TEST(EngineDump, SaysWhereAKernelCameFromAndHowLongItTook) {
  const test::TemporaryFolder folder;
  const test::Environment dump("TREADLE_DUMP", "time");
  const plan::Target target = plan::host_target();
  const auto emit = [&] { return test::squares_module(target); };
  {
    Engine engine({.cache_folder = folder.path()});
    testing::internal::CaptureStderr();
    engine.code(key, target, emit);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                ContainsRegex("== time: kernel [0-9a-f]+\ncompiled, [0-9.]+ ms: emit [0-9.]+, "
                              "passes [0-9.]+, code [0-9.]+, link [0-9.]+\n"));
    testing::internal::CaptureStderr();
    engine.code(key, target, emit);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("\nmemory\n"));
  }
  Engine engine({.cache_folder = folder.path()});
  testing::internal::CaptureStderr();
  engine.code(key, target, emit);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              ContainsRegex("\ndisk, [0-9.]+ ms: read [0-9.]+, link [0-9.]+\n"));
}

TEST(EngineDump, ShowsCodeAlsoOfKernelsOnDisk) {
  const test::TemporaryFolder folder;
  const plan::Target target = plan::host_target();
  ask(folder.path(), target);
  const test::Environment dump("TREADLE_DUMP", "ir,asm");
  testing::internal::CaptureStderr();
  ask(folder.path(), target);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("== ir: kernel "), HasSubstr("define void @kernel("),
                    HasSubstr("== asm: kernel "), HasSubstr("\nkernel:")));
}

}  // namespace
}  // namespace treadle::jit
