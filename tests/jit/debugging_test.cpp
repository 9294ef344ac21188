// What perf and gdb get to see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderGDB.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "environment.h"
#include "jit/engine.h"
#include "kernels.h"
#include "temporary_folder.h"

extern "C" jit_descriptor __jit_debug_descriptor;  // where debuggers look

namespace treadle::jit {
namespace {

Engine::Code make(Engine& engine) {
  const plan::Target target = plan::host_target();
  return engine.code(base::Hash{.high = 7, .low = 8}, target,
                     [&] { return test::squares_module(target); });
}

TEST(Debugging, PerfGetsAFile) {
  const test::TemporaryFolder folder;
  const test::Environment place("JITDUMPDIR", folder.path().c_str());
  {
    Engine engine({.perf = true});
    make(engine);
  }
  ASSERT_EQ(folder.files().size(), 1);
  const std::filesystem::path path = folder.files()[0];
  EXPECT_EQ(path.filename(), "jit-" + std::to_string(getpid()) + ".dump");
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  EXPECT_THAT(content.str(), testing::HasSubstr("kernel"));
  EXPECT_EQ(content.str().substr(32, 8), std::string(8, '\0')) << "perf refuses other flags";
}

TEST(Debugging, GdbGetsAnEntry) {
  const jit_code_entry* before = __jit_debug_descriptor.first_entry;
  Engine engine({.gdb = true});
  make(engine);
  const jit_code_entry* entry = __jit_debug_descriptor.first_entry;
  ASSERT_NE(entry, before);
  const std::string object(entry->symfile_addr, entry->symfile_size);
  EXPECT_THAT(object, testing::StartsWith("\x7f"
                                          "ELF"));
  EXPECT_THAT(object, testing::HasSubstr("kernel"));
}

}  // namespace
}  // namespace treadle::jit
