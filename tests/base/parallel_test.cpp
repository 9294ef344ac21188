#include "base/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "treadle/error.h"

namespace treadle {
namespace {

// Every executor keeps the same promises.
std::vector<std::shared_ptr<Executor>> executors() {
  return {serial_executor(), tbb_executor(1), tbb_executor(2), tbb_executor(7), tbb_executor()};
}

// Plain ints: ThreadSanitizer must see that the tasks' writes reach the caller and the next run.
void expect_each_once(Executor& executor, std::int64_t count) {
  std::vector<int> calls(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  executor.run(count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
  EXPECT_EQ(std::count(calls.begin(), calls.end(), 1), static_cast<std::ptrdiff_t>(calls.size()));
  executor.run(count, [&](std::int64_t i) { calls[static_cast<std::size_t>(i)] += 2; });
  EXPECT_EQ(std::accumulate(calls.begin(), calls.end(), 0), 3 * static_cast<int>(calls.size()));
}

TEST(Executor, EachTaskOnce) {
  for (const auto& executor : executors()) {
    SCOPED_TRACE(executor->threads());
    for (const std::int64_t count : {-1, 0, 1, 2, 3, 100, 10000})
      expect_each_once(*executor, count);
  }
}

TEST(Executor, ThreadCounts) {
  EXPECT_EQ(serial_executor()->threads(), 1);
  EXPECT_EQ(tbb_executor(1)->threads(), 1);
  EXPECT_EQ(tbb_executor(7)->threads(), 7);
  EXPECT_GE(tbb_executor()->threads(), 1);
  EXPECT_THROW((void)tbb_executor(-1), Error);
}

TEST(Executor, NeverMoreThreadsThanAsked) {
  for (const int threads : {1, 2, 3}) {
    const auto executor = tbb_executor(threads);
    std::atomic<int> running = 0;
    std::atomic<int> most = 0;
    executor->run(200, [&](std::int64_t) {
      const int now = ++running;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      --running;
    });
    EXPECT_LE(most, threads);
  }
}

// Each task waits until all have started: only as many threads as tasks get through.
TEST(Executor, AsManyThreadsAsAskedEvenBeyondTheHardware) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency()) + 2;
  const auto executor = tbb_executor(threads);
  std::atomic<int> started = 0;
  std::atomic<bool> met = false;
  executor->run(threads, [&](std::int64_t) {
    ++started;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!met && std::chrono::steady_clock::now() < deadline) {
      if (started == threads) met = true;
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(met);
}

TEST(Executor, OneThreadRunsInOrder) {
  for (const auto& executor : {serial_executor(), tbb_executor(1)}) {
    std::vector<std::int64_t> order;
    executor->run(50, [&](std::int64_t i) { order.push_back(i); });
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(order.size(), 50U);
  }
}

TEST(Executor, TheFirstExceptionComesOut) {
  for (const auto& executor : executors()) {
    SCOPED_TRACE(executor->threads());
    std::atomic<int> inside = 0;
    std::atomic<int> calls = 0;
    try {
      executor->run(100000, [&](std::int64_t i) {
        ++inside;
        ++calls;
        if (i == 3) {
          --inside;
          throw Error("task 3");
        }
        --inside;
      });
      ADD_FAILURE() << "no exception";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "task 3");
    }
    EXPECT_EQ(inside, 0);  // nothing runs on
    EXPECT_GE(calls, 4);
    expect_each_once(*executor, 100);  // and the executor still works
  }
}

TEST(Executor, EveryTaskMayThrow) {
  for (const auto& executor : executors()) {
    EXPECT_THROW(executor->run(1000, [](std::int64_t) { throw std::runtime_error("each"); }),
                 std::runtime_error);
  }
}

TEST(Executor, TasksMayRunTasks) {
  for (const auto& executor : executors()) {
    SCOPED_TRACE(executor->threads());
    std::vector<int> calls(8 * 8 * 8);
    executor->run(8, [&](std::int64_t i) {
      executor->run(8, [&](std::int64_t j) {
        executor->run(
            8, [&](std::int64_t k) { ++calls[static_cast<std::size_t>(i * 64 + j * 8 + k)]; });
      });
    });
    EXPECT_EQ(std::count(calls.begin(), calls.end(), 1), 512);
  }
}

// A lock held across an inner run deadlocks if the waiting thread picks up another outer task.
TEST(Executor, AWaitingTaskStartsNoOtherOuterTask) {
  const auto executor = tbb_executor(4);
  std::mutex mutex;
  std::atomic<int> sum = 0;
  executor->run(50, [&](std::int64_t) {
    const std::lock_guard lock(mutex);
    executor->run(20, [&](std::int64_t) { ++sum; });
  });
  EXPECT_EQ(sum, 1000);
}

TEST(Executor, ManyCallersAtOnce) {
  for (const auto& executor : executors()) {
    SCOPED_TRACE(executor->threads());
    std::vector<std::thread> callers;
    callers.reserve(6);
    for (int i = 0; i < 6; ++i) {
      callers.emplace_back([&] {
        for (int repeat = 0; repeat < 20; ++repeat) expect_each_once(*executor, 37);
      });
    }
    for (auto& caller : callers) caller.join();
  }
}

// An executor as a host program may write it.
class CountingExecutor final : public Executor {
 public:
  [[nodiscard]] int threads() const override { return 1; }
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    ++runs;
    for (std::int64_t i = count; i-- > 0;) task(i);
  }
  int runs = 0;
};

TEST(ParallelFor, UsesTheExecutorForMoreThanOne) {
  CountingExecutor executor;
  std::set<std::int64_t> seen;
  const auto note = [&](std::int64_t i) { seen.insert(i); };
  base::parallel_for(executor, 0, note);
  base::parallel_for(executor, -3, note);
  EXPECT_TRUE(seen.empty());
  base::parallel_for(executor, 1, note);
  EXPECT_EQ(seen.size(), 1U);
  EXPECT_EQ(executor.runs, 0);
  base::parallel_for(executor, 5, note);
  EXPECT_EQ(seen.size(), 5U);
  EXPECT_EQ(executor.runs, 1);
}

TEST(ParallelFor, ForgivesExecutors) {
  class Careless final : public Executor {
   public:
    [[nodiscard]] int threads() const override { return 1; }
    void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
      for (std::int64_t i = 0; i < count; i += 3) {
        task(i);
        task(i);
      }
    }
  };
  Careless careless;
  std::vector<std::int64_t> order;
  base::parallel_for(careless, 20, [&](std::int64_t i) { order.push_back(i); });
  std::vector<std::int64_t> each(20);
  std::iota(each.begin(), each.end(), 0);
  EXPECT_EQ(order, each);
  EXPECT_THROW(base::parallel_for(careless, 20, [](std::int64_t) { throw Error("one"); }), Error);
}

// A task that has begun ends before the exception comes out.
TEST(ParallelFor, WaitsForTasksOfAnExecutorThatThrows) {
  class Impatient final : public Executor {
   public:
    ~Impatient() override {
      if (thread.joinable()) thread.join();
    }
    [[nodiscard]] int threads() const override { return 2; }
    void run(std::int64_t, const std::function<void(std::int64_t)>& task) override {
      thread = std::thread([task] { task(0); });
      while (!begun) std::this_thread::yield();
      throw std::out_of_range("too long");
    }
    std::thread thread;
    std::atomic<bool> begun = false;
  };
  Impatient impatient;
  bool ended = false;
  EXPECT_THROW(base::parallel_for(impatient, 2,
                                  [&](std::int64_t) {
                                    impatient.begun = true;
                                    std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                    ended = true;
                                  }),
               std::out_of_range);
  EXPECT_TRUE(ended);
}

TEST(ParallelFor, StopsBetweenTasks) {
  for (const auto& executor : executors()) {
    std::stop_source source;
    const base::Workers workers(*executor, source.get_token());
    std::atomic<int> calls = 0;
    EXPECT_THROW(base::parallel_for(workers, 100000,
                                    [&](std::int64_t i) {
                                      ++calls;
                                      if (i == 3) source.request_stop();
                                    }),
                 Stopped);
    EXPECT_GE(calls, 4);
    EXPECT_LT(calls, 100000);
    calls = 0;
    EXPECT_THROW(base::parallel_for(workers, 1, [&](std::int64_t) { ++calls; }), Stopped);
    EXPECT_EQ(calls, 0);
  }
}

}  // namespace
}  // namespace treadle
