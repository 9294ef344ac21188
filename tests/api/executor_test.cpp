// Calls on executors that do not keep their promises.
#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <thread>

#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

using ExecutorTask = std::function<void(std::int64_t)>;

// Runs tasks as a test says.
class FreeExecutor final : public Executor {
 public:
  using Run = std::function<void(std::int64_t, const ExecutorTask&)>;
  explicit FreeExecutor(Run run) : run_(std::move(run)) {}
  [[nodiscard]] int threads() const override { return 4; }
  void run(std::int64_t count, const ExecutorTask& task) override { run_(count, task); }

 private:
  Run run_;
};

struct AllResults {
  Tensor out, lse, dq, dk, dv, slopes;
};

// Forward and backward with a captured gradient: more tasks than one in every stage.
struct OnExecutor {
  Tensor q = random_tensor(1, DType::f32, {2, 4, 300, 8});
  Tensor k = random_tensor(2, DType::f32, {2, 2, 2100, 8});
  Tensor v = random_tensor(3, DType::f32, {2, 2, 2100, 8});
  Tensor dout = random_tensor(4, DType::f32, {2, 4, 300, 8});
  Tensor slopes = random_tensor(5, DType::f32, {4});
  Attention attend = compiled();

  [[nodiscard]] Attention compiled() const {
    Options options;
    options.score_mod = mods::alibi({"slopes", slopes});
    options.mask = mods::window(500);
    options.gradients = {"slopes"};
    return compile(options);
  }

  [[nodiscard]] AllResults operator()(const std::shared_ptr<Executor>& executor) const {
    Forward y = attend.forward({q, k, v}, {.executor = executor, .lse = true});
    Backward g =
        attend.backward({q, k, v}, {y.out, y.lse}, dout, std::nullopt, {.executor = executor});
    return {std::move(y.out), std::move(y.lse), std::move(g.dq),
            std::move(g.dk),  std::move(g.dv),  std::move(g.captures[0].gradient)};
  }
};

bool same_results(const AllResults& a, const AllResults& b) {
  return same_bits(a.out, b.out) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) &&
         same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv) && same_bits(a.slopes, b.slopes);
}

void expect_right(const FreeExecutor::Run& run) {
  const OnExecutor attend_on;
  const AllResults expected = attend_on(serial_executor());
  EXPECT_TRUE(same_results(attend_on(std::make_shared<FreeExecutor>(run)), expected));
}

TEST(BadExecutors, TasksTwice) {
  expect_right([](std::int64_t count, const ExecutorTask& task) {
    for (std::int64_t i = 0; i < count; ++i) {
      task(i);
      task(i);
    }
  });
}

TEST(BadExecutors, OneTaskAgainAndAgain) {
  expect_right([](std::int64_t count, const ExecutorTask& task) {
    for (std::int64_t i = 0; i < 2 * count; ++i) task(7);
  });
}

TEST(BadExecutors, NumbersThatAreNoTasks) {
  expect_right([](std::int64_t count, const ExecutorTask& task) {
    for (std::int64_t i = 0; i < count; ++i) task(-5 - i * 1000);
  });
}

TEST(BadExecutors, HalfOfTheTasks) {
  expect_right([](std::int64_t count, const ExecutorTask& task) {
    for (std::int64_t i = 0; i < count; i += 2) task(i);
  });
}

TEST(BadExecutors, NoTaskAtAll) {
  expect_right([](std::int64_t, const ExecutorTask&) {});
}

TEST(BadExecutors, AllAtOnceAndBackwards) {
  expect_right([](std::int64_t count, const ExecutorTask& task) {
    std::vector<std::thread> threads;
    for (std::int64_t i = count; i-- > 0;) threads.emplace_back([&task, i] { task(i); });
    for (std::thread& thread : threads) thread.join();
  });
}

// An executor that throws passes its exception on, whatever has been done by then; nothing of that
// is left in the next call.
TEST(BadExecutors, ExceptionsOfTheirOwn) {
  const OnExecutor attend_on;
  const AllResults expected = attend_on(serial_executor());
  for (std::int64_t before = 0; before < 40; ++before) {
    std::int64_t left = before;
    const auto throwing =
        std::make_shared<FreeExecutor>([&](std::int64_t count, const ExecutorTask& task) {
          for (std::int64_t i = 0; i < count; ++i) {
            if (left-- <= 0) throw std::out_of_range("enough");
            task(i);
          }
        });
    try {
      const AllResults got = attend_on(throwing);
      EXPECT_TRUE(same_results(got, expected));
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "enough");
    }
    EXPECT_TRUE(same_results(attend_on(tbb_executor(2)), expected)) << before;
  }
}

// A mod's error reaches the caller although the executor keeps exceptions to itself.
TEST(BadExecutors, ExceptionsThatAreSwallowed) {
  const Tensor q = random_tensor(1, DType::f32, {1, 2, 100, 8});
  const Tensor table = random_tensor(2, DType::f32, {50});
  Options options;
  options.score_mod = [view = ConstView(table)](Score s, Index, Index, Index, Index kv) {
    return s + view(kv);
  };
  const auto silent =
      std::make_shared<FreeExecutor>([](std::int64_t count, const ExecutorTask& task) {
        for (std::int64_t i = 0; i < count; ++i) {
          try {
            task(i);
          } catch (...) {
          }
        }
      });
  EXPECT_THROW((void)compile(options).forward({q, q, q}, {.executor = silent}), ModError);
}

}  // namespace
}  // namespace treadle
