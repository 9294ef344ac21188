// Kernels for processors that are not here: run by an emulator, or looked at.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "emit/llvm/forward.h"
#include "jit/engine.h"
#include "jit/inspect.h"
#include "passes/simplify.h"
#include "paths.h"
#include "traced.h"
#include "treadle/mods.h"
#include "treadle/tensor.h"

namespace treadle {
namespace {

bool have(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

plan::ForwardKernelSpec causal_alibi(const plan::Target& target, std::int64_t dim,
                                     std::int64_t value_dim) {
  static const Tensor slopes(DType::f32, {2});
  plan::ForwardKernelSpec spec;
  spec.plan = plan::plan_tile(target, DType::f32, dim, value_dim, plan::most_vectors);
  spec.score =
      plan::score_form(passes::simplify(test::traced_score(mods::alibi({"slopes", slopes})).graph));
  spec.score_facts = {
      .narrow = true, .reads = plan::Reads::proven, .consecutive = true, .unit_stride = {true}};
  spec.masked = true;
  spec.mask = passes::simplify(test::traced_mask(mods::causal()).graph);
  spec.mask_facts = {
      .narrow = true, .reads = plan::Reads::proven, .consecutive = true, .unit_stride = {}};
  return spec;
}

TEST(Foreign, AnAarch64KernelRunsInAnEmulator) {
  const plan::Target target = plan::find_target("aarch64");
  const plan::ForwardKernelSpec spec = causal_alibi(target, 20, 13);
  const std::string object = jit::object_of(emit::llvm::emit_forward(spec), target);
  ASSERT_EQ(object.substr(0, 4),
            "\x7f"
            "ELF");
  for (const char* program : {"clang-19", "ld.lld-19", "qemu-aarch64"}) {
    if (!have(program)) GTEST_SKIP() << "there is no " << program << ": the object is not run";
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("treadle-foreign-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "kernel.o", std::ios::binary) << object;
  const std::string program = (folder / "program").string();
  const std::string build =
      "clang-19 --target=aarch64-linux-gnu -O1 -ffreestanding -fno-builtin -nostdlib -static "
      "-fuse-ld=lld-19 -DDIM=20 -DVALUE_DIM=13 -DWIDTH=" +
      std::to_string(spec.plan.width()) + " " +
      (test::project_folder() / "tests/run/foreign/harness.c").string() + " " +
      (folder / "kernel.o").string() + " -o " + program;
  EXPECT_EQ(std::system(build.c_str()), 0) << build;
  EXPECT_EQ(std::system(("qemu-aarch64 " + program).c_str()), 0);
  std::filesystem::remove_all(folder);
}

// Straight pieces of assembly between labels and jumps that hold at least so many multiply-adds.
std::vector<std::string> hot_blocks(const std::string& assembly, int fewest) {
  std::vector<std::string> hot;
  std::istringstream lines(assembly);
  std::string block, line;
  int products = 0;
  while (std::getline(lines, line)) {
    block += line + "\n";
    if (line.find("vfmadd") != std::string::npos) ++products;
    const bool ends = line.starts_with(".L") || line.find("\tj") == 0;
    if (!ends) continue;
    if (products >= fewest) hot.push_back(block);
    block.clear();
    products = 0;
  }
  return hot;
}

// Inner loops live on registers: a spill there costs a tenth of the speed and more.
TEST(Foreign, InnerLoopsDoNotSpill) {
  for (const char* name : {"haswell", "skylake-avx512", "icelake-server"}) {
    const plan::Target target = plan::find_target(name);
    for (const std::int64_t dim : {32, 64, 80, 128, 256}) {
      for (int vectors = 1; vectors <= plan::most_vectors; ++vectors) {
        plan::ForwardKernelSpec spec;
        spec.plan = plan::plan_tile(target, DType::f32, dim, dim, vectors);
        const std::string assembly = jit::assembly_of(emit::llvm::emit_forward(spec), target);
        EXPECT_NE(assembly.find(target.vector_bytes == 64 ? "%zmm" : "%ymm"), std::string::npos);
        const auto hot = hot_blocks(assembly, 2 * spec.plan.rows * vectors);
        EXPECT_GE(hot.size(), 2U) << name << " " << dim << " " << vectors;  // scores, and values
        for (const std::string& block : hot)
          EXPECT_EQ(block.find("(%rsp)"), std::string::npos) << name << " dim " << dim << "\n"
                                                             << block;
      }
    }
  }
}

}  // namespace
}  // namespace treadle
