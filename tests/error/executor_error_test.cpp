// What calls say about an executor without threads.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "treadle/attention.h"

namespace treadle {
namespace {

using test::expect_error;

class ThreadsExecutor final : public Executor {
 public:
  explicit ThreadsExecutor(int threads) : threads_(threads) {}
  [[nodiscard]] int threads() const override { return threads_; }
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    for (std::int64_t i = 0; i < count; ++i) task(i);
  }

 private:
  int threads_;
};

TEST(ExecutorErrors, NoThreads) {
  const Tensor x(DType::f32, {1, 2, 70, 8});
  const Attention plain = compile({});
  const Forward y = plain.forward({x, x, x}, {.lse = true});
  for (const int threads : {0, -3}) {
    const Call call{.executor = std::make_shared<ThreadsExecutor>(threads)};
    const std::string rule = ": the executor says that it has " + std::to_string(threads) +
                             " threads; it must have at least 1";
    expect_error([&] { (void)plain.forward({x, x, x}, call); }, "forward" + rule);
    expect_error([&] { (void)plain.backward({x, x, x}, {y.out, y.lse}, x, {}, call); },
                 "backward" + rule);
    expect_error([&] { (void)plain.layout({x, x, x}, call); }, "layout" + rule);
    expect_error([&] { (void)plain.block_lists({}, {x, x, x}, call); }, "block_lists" + rule);
    expect_error([&] { (void)plain.block_layout(16, {x, x, x}, call); }, "block_layout" + rule);
  }
}

}  // namespace
}  // namespace treadle
