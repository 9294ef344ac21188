#include "jit/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/engine.h"
#include "kernels.h"

namespace treadle::jit {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string assembly(const char* name) {
  const plan::Target target = plan::find_target(name);
  return assembly_of(test::squares_module(target), target);
}

TEST(Inspect, AssemblyUsesWhatTheTargetHas) {
  EXPECT_THAT(assembly("x86-64"), AllOf(HasSubstr("mulps"), Not(HasSubstr("ymm"))));
  EXPECT_THAT(assembly("haswell"),
              AllOf(HasSubstr("vfmadd"), HasSubstr("ymm"), Not(HasSubstr("zmm"))));
  EXPECT_THAT(assembly("icelake-server"), AllOf(HasSubstr("vfmadd"), HasSubstr("zmm")));
  EXPECT_THAT(assembly("aarch64"), ContainsRegex("fmla\tv[0-9]+\\.4s"));
}

TEST(Inspect, ObjectsOfAnyMachineAreElf) {
  for (const char* name : {"x86-64", "icelake-server", "aarch64", "neoverse-n1"}) {
    const plan::Target target = plan::find_target(name);
    EXPECT_THAT(object_of(test::squares_module(target), target), StartsWith("\x7f"
                                                                            "ELF"))
        << name;
  }
}

// Two roundings unless the emitter asked for one.
TEST(Inspect, ProductsAndSumsStaySeparate) {
  const plan::Target target = plan::find_target("haswell");
  emit::llvm::Module made = emit::llvm::make_module("separate", target);
  auto* real = llvm::Type::getFloatTy(*made.context);
  auto* type = llvm::FunctionType::get(real, {real, real, real}, false);
  llvm::Function* function = emit::llvm::make_function(*made.module, "kernel", type, target);
  emit::llvm::Builder build(function, target, DType::f32);
  build.CreateRet(build.CreateFAdd(build.CreateFMul(function->getArg(0), function->getArg(1)),
                                   function->getArg(2)));
  EXPECT_THAT(assembly_of(std::move(made), target),
              AllOf(HasSubstr("vmulss"), HasSubstr("vaddss"), Not(HasSubstr("vfmadd"))));
}

}  // namespace
}  // namespace treadle::jit
