// A target runs where the processor has all that LLVM may use for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/TargetParser/X86TargetParser.h>

#include <algorithm>
#include <set>

#include "plan/target.h"

namespace treadle::jit {
namespace {

// Part of every x86-64, or used only where the IR asks for it by name.
const std::set<std::string> never_chosen{
    // what all have
    "x87", "cx8", "cmov", "fxsr", "mmx", "sse", "sse2", "sse3", "64bit", "cx16", "sahf", "crc32",
    // registers and memory of the system
    "xsave", "xsaveopt", "xsavec", "xsaves", "fsgsbase", "invpcid", "pku", "rdpid", "sgx",
    "pconfig", "wbnoinvd", "ptwrite", "uintr", "waitpkg", "tsxldtrk", "enqcmd", "serialize",
    "cldemote", "clflushopt", "clwb", "movdiri", "movdir64b", "shstk",
    // random numbers, hashes, ciphers, long integers, prefetching
    "rdrnd", "rdseed", "sha", "aes", "vaes", "pclmul", "vpclmulqdq", "adx", "prfchw",
    // vectors of 512 bits, which all that have avx512f have (LLVM before 22 names it)
    "evex512",
    // matrices
    "amx-tile", "amx-int8", "amx-bf16"};

TEST(TargetFeatures, AreAllThatLlvmMayUse) {
  for (const char* name :
       {"x86-64", "haswell", "skylake-avx512", "icelake-server", "sapphirerapids"}) {
    const std::vector<std::string> needed = plan::needed_features(name);
    llvm::SmallVector<llvm::StringRef> all;
    llvm::X86::getFeaturesForCPU(plan::find_target(name).cpu, all);
    ASSERT_FALSE(all.empty());
    for (const llvm::StringRef feature : all) {
      if (never_chosen.contains(feature.str())) continue;
      EXPECT_THAT(needed, testing::Contains(feature.str())) << name;
    }
  }
}

}  // namespace
}  // namespace treadle::jit
