// Options::target: code for another processor than this one.
#include "plan/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment.h"
#include "expect_error.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::Environment;
using test::random_tensor;

TEST(OptionsTarget, AnyThatRunsHere) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, 50, 16});
  Options options;
  options.mask = mods::causal();
  options.backend = Backend::reference;
  const Forward expected = attention({x, x, x}, options, {.lse = true});
  options.backend = Backend::cpu;
  for (const std::string& name : plan::runnable_targets()) {
    options.target = name;
    const Forward y = attention({x, x, x}, options, {.lse = true});
    EXPECT_LT(test::largest_difference(y.out, expected.out), 1e-5) << name;
    EXPECT_LT(test::largest_difference(y.lse, expected.lse), 1e-5) << name;
  }
}

// A layout is for tiles of one target's height, and serves the others too.
TEST(OptionsTarget, LayoutsGoFromOneToTheOther) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, 130, 16});
  Options options;
  options.mask = mods::window(30);
  const Layout layout = compile(options).layout({x, x, x});
  for (const std::string& name : plan::runnable_targets()) {
    options.target = name;
    const Attention attend = compile(options);
    const Layout own = attend.layout({x, x, x});
    EXPECT_TRUE(test::same_bits(attend.forward({x, x, x}, {.layout = layout}).out,
                                attend.forward({x, x, x}, {.layout = own}).out))
        << name;
  }
}

TEST(OptionsTarget, Unknown) {
  Options options;
  options.target = "abacus";
  EXPECT_ERROR(compile(options),
               "target: there is no target \"abacus\"; there are x86-64, haswell, skylake-avx512, "
               "icelake-server, sapphirerapids, aarch64, neoverse-n1");
}

TEST(OptionsTarget, NotOfThisProcessor) {
  const std::vector<std::string> runnable = plan::runnable_targets();
  std::string known;
  for (const std::string& name : runnable) known += (known.empty() ? "" : ", ") + name;
  for (const std::string name : {"x86-64", "haswell", "skylake-avx512", "aarch64"}) {
    if (std::ranges::find(runnable, name) != runnable.end()) continue;
    Options options;
    options.target = name;
    EXPECT_ERROR(compile(options), "compile: the target is \"" + name +
                                       "\", which this processor cannot run; it runs " + known);
  }
}

TEST(OptionsTarget, TheEnvironmentsWhenNoneIsGiven) {
  const Tensor x = random_tensor(1, DType::f32, {1, 2, 50, 16});
  const std::string slowest = plan::runnable_targets().front();
  Options options;
  options.target = slowest;
  const Tensor expected = attention({x, x, x}, options).out;
  const Environment asked("TREADLE_TARGET", slowest.c_str());
  EXPECT_TRUE(test::same_bits(attention({x, x, x}).out, expected));
  const Environment wrong("TREADLE_TARGET", "abacus");
  EXPECT_ERROR(compile({}),
               "target: there is no target \"abacus\"; there are x86-64, haswell, skylake-avx512, "
               "icelake-server, sapphirerapids, aarch64, neoverse-n1");
}

}  // namespace
}  // namespace treadle
