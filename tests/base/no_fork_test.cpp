#include "base/no_fork.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "child_process.h"
#include "treadle/executor.h"

namespace treadle::base {
namespace {

using std::chrono::milliseconds;

TEST(NoForkTest, ForkWaits) {
  std::atomic<int> steps = 0;
  std::thread other([&] {
    const NoFork whole;
    const NoFork inner;
    steps = 1;
    std::this_thread::sleep_for(milliseconds(200));
    steps = 2;
  });
  while (steps == 0) std::this_thread::yield();
  const std::uint64_t before = forks();
  const test::Ended child = test::run_child([&] {
    if (forks() != before + 1 || torn_by_fork()) return 1;
    const NoFork again;
    return steps.load();
  });
  other.join();
  EXPECT_EQ(child.exit_code, 2) << child.text();
  EXPECT_EQ(forks(), before);
}

TEST(NoForkTest, WhoWantsInWaitsForTheFork) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (int t = 0; t < 3; ++t) {
    others.emplace_back([&] {
      while (!stop) const NoFork whole;
    });
  }
  for (int round = 0; round < 20; ++round) {
    const test::Ended child = test::run_child([&] {
      const NoFork again;
      return torn_by_fork() ? 1 : 0;
    });
    EXPECT_EQ(child.exit_code, 0) << child.text();
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

TEST(NoForkTest, AHelperIsLetInByWhoWaitsForIt) {
  std::optional<NoFork> whole(std::in_place);
  EXPECT_TRUE(NoFork::is_here());
  std::thread forks([] { EXPECT_EQ(test::run_child([] { return 0; }).exit_code, 0); });
  std::this_thread::sleep_for(milliseconds(50));  // it waits now
  const auto start = std::chrono::steady_clock::now();
  std::thread([] {
    EXPECT_FALSE(NoFork::is_here());
    const NoFork within{NoFork::Within()};
    EXPECT_TRUE(NoFork::is_here());
  }).join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  whole.reset();
  forks.join();
  EXPECT_FALSE(NoFork::is_here());
}

// A child has none of the threads of oneTBB.
TEST(NoForkTest, ExecutorsAreSerialInAChild) {
  const auto executor = tbb_executor(2);
  std::atomic<int> sum = 0;
  const auto add = [&](std::int64_t i) { sum += static_cast<int>(i); };
  executor->run(100, add);
  EXPECT_EQ(sum, 4950);
  const test::Ended child = test::run_child([&] {
    sum = 0;
    std::set<std::thread::id> threads;
    const auto note = [&](std::int64_t i) {
      threads.insert(std::this_thread::get_id());
      add(i);
    };
    executor->run(100, note);
    tbb_executor(3)->run(100, note);
    return sum == 9900 && threads.size() == 1 && executor->threads() == 1 ? 0 : 1;
  });
  EXPECT_EQ(child.exit_code, 0) << child.text();
}

}  // namespace
}  // namespace treadle::base
