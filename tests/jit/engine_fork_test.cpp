// A process that is forked while threads compile: the child gets all kernels, and never hangs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "child_process.h"
#include "fuzz.h"
#include "jit/engine.h"
#include "kernels.h"

namespace treadle::jit {
namespace {

base::Key forked_key(int number) { return base::Hasher().add("forked").add(number).key(); }

// Whether kernel `number` adds up squares.
bool adds_squares(Engine& engine, int number, const Engine::Emit& emit) {
  const Engine::Code code = engine.code(forked_key(number), plan::host_target(), emit);
  const std::vector<float> x(64, 1.0F);
  float sum = 0;
  reinterpret_cast<test::Squares*>(const_cast<void*>(code.get()))(x.data(), &sum, 64);
  return sum == 64.0F;
}
bool adds_squares(Engine& engine, int number) {
  return adds_squares(engine, number, [] { return test::squares_module(plan::host_target()); });
}

TEST(EngineFork, AChildGetsTheKernelThatAnotherThreadCompiles) {
  Engine engine({});
  std::atomic<bool> begun = false;
  std::thread other([&] {
    adds_squares(engine, 1, [&] {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return test::squares_module(plan::host_target());
    });
  });
  while (!begun) std::this_thread::yield();
  const test::Ended child = test::run_child([&] { return adds_squares(engine, 1) ? 0 : 1; });
  EXPECT_EQ(child.exit_code, 0) << child.text();
  other.join();
}

TEST(EngineFork, AtAnyMoment) {
  for (int round = 0; round < test::fuzz_count(50); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    Engine engine({.capacity = 4});
    std::atomic<bool> stop = false;
    std::vector<std::thread> others;
    for (int t = 0; t < 2; ++t) {
      others.emplace_back([&, t] {
        for (int number = t; !stop; number += 2) EXPECT_TRUE(adds_squares(engine, number % 8));
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(test::random_int(random, 0, 60000)));
    const test::Ended child = test::run_child([&] {
      for (int number = 0; number < 8; ++number) {
        if (!adds_squares(engine, number)) return 1;
      }
      return 0;
    });
    stop = true;
    for (std::thread& other : others) other.join();
    EXPECT_EQ(child.exit_code, 0) << child.text();
  }
}

}  // namespace
}  // namespace treadle::jit
