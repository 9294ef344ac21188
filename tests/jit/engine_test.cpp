#include "jit/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "expect_error.h"
#include "kernels.h"

namespace treadle::jit {
namespace {

base::Hash key_of(std::string_view text) { return base::Hasher().add(text).finish(); }

TEST(Engine, RunsWhatItCompiles) {
  Engine engine({});
  std::vector<float> x(128);
  std::iota(x.begin(), x.end(), 0.0F);
  for (const std::string& name : plan::runnable_targets()) {
    const plan::Target target = plan::find_target(name);
    auto* squares = test::function<test::Squares>(engine, key_of("squares"), target,
                                                  [&] { return test::squares_module(target); });
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(squares) % 16, 0);
    float result = 0;
    squares(x.data(), &result, static_cast<long>(x.size()));
    EXPECT_EQ(result, 127.0F * 128 * 255 / 6) << name;
  }
  EXPECT_EQ(engine.statistics().compiled, static_cast<long>(plan::runnable_targets().size()));
}

TEST(Engine, AHeldKernelOutlivesTheEngine) {
  plan::Kernel<plan::CopyArgs> copy;
  {
    Engine engine({});
    copy = engine.get(plan::CopySpec{plan::host_target(), DType::f32, DType::f64, 3});
  }
  const std::vector<float> from{1, 2, 3};
  std::vector<double> to(3);
  copy({.source = from.data(), .target = to.data(), .count = 1});
  EXPECT_EQ(to, (std::vector<double>{1, 2, 3}));
}

TEST(Engine, CompilesOnceHoweverManyAsk) {
  Engine engine({});
  const plan::Target target = plan::host_target();
  std::atomic<int> emitted = 0;
  std::vector<Engine::Code> found(10);
  std::vector<std::thread> threads;
  for (Engine::Code& code : found) {
    threads.emplace_back([&] {
      code = engine.code(key_of("squares"), target, [&] {
        ++emitted;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return test::squares_module(target);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(emitted, 1);
  EXPECT_NE(found[0], nullptr);
  EXPECT_EQ(std::ranges::count(found, found[0]), 10);
  EXPECT_EQ(engine.statistics().compiled, 1);
  EXPECT_EQ(engine.statistics().memory_hits, 9);
}

TEST(Engine, TellsEveryoneWhoWaitsThatEmittingFailed) {
  Engine engine({});
  const plan::Target target = plan::host_target();
  std::atomic<int> emitted = 0, caught = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 10; ++i) {
    threads.emplace_back([&] {
      try {
        engine.code(key_of("squares"), target, [&]() -> emit::llvm::Module {
          ++emitted;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          throw std::runtime_error("no such kernel");
        });
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "no such kernel");
        ++caught;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(caught, 10);
  EXPECT_LE(emitted, 10);
  // The next one tries again.
  EXPECT_NE(engine.code(key_of("squares"), target, [&] { return test::squares_module(target); }),
            nullptr);
}

TEST(Engine, CallsMathOfTheLibraries) {
  Engine engine({});
  const plan::Target target = plan::host_target();
  const std::vector<float> x(16, 0.5F);
  const auto check = [&](const std::string& callee, int lanes) {
    SCOPED_TRACE(callee);
    auto* map = test::function<test::Map>(engine, key_of(callee), target,
                                          [&] { return test::call_module(target, callee, lanes); });
    std::vector<float> y(16, 0.0F);
    map(x.data(), y.data());
    for (int i = 0; i < lanes; ++i)
      EXPECT_NEAR(y[static_cast<std::size_t>(i)], std::tanh(0.5F), 1e-6F);
  };
  check("tanhf", 1);
  if (!target.libmvec) GTEST_SKIP() << "no libmvec here";
  check("_ZGVbN4v_tanhf", 4);
  if (target.vector_bytes >= 32) check("_ZGVdN8v_tanhf", 8);
  if (target.vector_bytes >= 64) check("_ZGVeN16v_tanhf", 16);
}

TEST(Engine, SaysWhichFunctionIsMissing) {
  Engine engine({});
  const plan::Target target = plan::host_target();
  for (int i = 0; i < 2; ++i) {  // twice: the failed one leaves nothing behind
    try {
      engine.code(key_of("missing"), target,
                  [&] { return test::call_module(target, "no_such_function", 1); });
      FAIL() << "loaded";
    } catch (const base::InternalError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("no_such_function"));
    }
  }
}

TEST(Engine, RefusesToLoadCodeOfAnotherMachine) {
  Engine engine({});
  const bool arm = plan::host_target().triple.starts_with("aarch64");
  const plan::Target target = plan::find_target(arm ? "haswell" : "aarch64");
  try {
    engine.code(key_of("squares"), target, [&] { return test::squares_module(target); });
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(target.triple));
  }
}

TEST(Engine, RefusesMalformedModules) {
  Engine engine({});
  const plan::Target target = plan::host_target();
  EXPECT_THROW(engine.code(key_of("malformed"), target,
                           [&] {
                             emit::llvm::Module made = test::squares_module(target);
                             made.module->getFunction("kernel")->back().back().eraseFromParent();
                             return made;
                           }),
               base::InternalError);
}

}  // namespace
}  // namespace treadle::jit
