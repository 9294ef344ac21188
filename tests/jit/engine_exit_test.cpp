// A process that ends while threads of it compile. Not during its very first compile: the statics
// that LLVM makes then are destroyed before exit() can be made to wait (jit/llvm_thread.cpp).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "child_process.h"
#include "fuzz.h"
#include "jit/engine.h"
#include "kernels.h"

namespace treadle::jit {
namespace {

TEST(EngineExit, DetachedThreadsMayCompile) {
  const int rounds = std::max(20, test::fuzz_count(200));
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    const std::chrono::microseconds delay(test::random_int(random, 0, 80000));
    const test::Ended child = test::run_child([&]() -> int {
      auto* engine = new Engine({});  // as the process's own, it is not taken down
      const plan::Target own = plan::host_target();
      engine->code(base::Hasher().add("first").key(), own,
                   [&] { return test::squares_module(own); });
      for (int t = 0; t < 3; ++t) {
        std::thread([=] {
          for (int number = t;; number += 3) {
            const plan::Target target = plan::host_target();
            engine->code(base::Hasher().add("exit").add(number).key(), target,
                         [&] { return test::squares_module(target); });
          }
        }).detach();
      }
      std::this_thread::sleep_for(delay);
      std::exit(0);  // with the destructors of all statics, LLVM's among them
    });
    EXPECT_EQ(child.exit_code, 0) << child.text();
  }
}

}  // namespace
}  // namespace treadle::jit
