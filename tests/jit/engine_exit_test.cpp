// A process that ends while threads of it compile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "child_process.h"
#include "fuzz.h"
#include "jit/engine.h"
#include "kernels.h"

namespace treadle::jit {
namespace {

void compile_one(Engine& engine, int number) {
  const plan::Target target = plan::host_target();
  engine.code(base::Hasher().add("exit").add(number).key(), target,
              [&] { return test::squares_module(target); });
}

// Three threads compile without end; after a while end() is called, which ends the process with the
// destructors of all statics, LLVM's among them.
void expect_clean_end(bool first_compile_is_done, const std::function<void()>& end) {
  const int rounds = std::max(20, test::fuzz_count(200));
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::chrono::microseconds delay(test::random_int(random, 0, 40000));
    const test::Ended child = test::run_child([&]() -> int {
      auto* engine = new Engine({});  // as the process's own, it is not taken down
      if (first_compile_is_done) compile_one(*engine, -1);
      for (int t = 0; t < 3; ++t) {
        std::thread([=] {
          for (int number = t;; number += 3) compile_one(*engine, number);
        }).detach();
      }
      std::this_thread::sleep_for(delay);
      end();
      return 1;
    });
    EXPECT_EQ(child.exit_code, 0) << child.text();
  }
}

// Children find what LLVM has set up in this process, so each of these tests needs one of its own.
TEST(EngineExit, OfTheMainThreadDuringAnyCompile) {
  expect_clean_end(false, [] { std::exit(0); });
}

// Not during the very first: the statics that LLVM makes then are destroyed before exit() can be
// made to wait (base/no_fork.cpp).
TEST(EngineExit, OfAnotherThreadDuringAnyCompileButTheFirst) {
  expect_clean_end(true, [] {
    std::thread([] { std::exit(0); }).detach();
    while (true) pause();
  });
}

}  // namespace
}  // namespace treadle::jit
