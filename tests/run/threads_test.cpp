// Many callers at once, of one function and of many, with kernels that nobody has compiled yet.
#include <gtest/gtest.h>

#include <thread>

#include "fuzz.h"
#include "plain_attention.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;

// Runs f(0) ... f(count - 1) on as many threads, started together.
template <class F>
void at_once(std::size_t count, F&& f) {
  std::atomic<std::size_t> waiting = count;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      f(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Callers, OfOneFunction) {
  const Tensor q = random_tensor(1, DType::f32, {1, 4, 60, 12});
  const Tensor k = random_tensor(2, DType::f32, {1, 2, 1500, 12});
  Options options;
  options.mask = mods::causal_lower_right(60, 1500);
  const Forward expected =
      attention({q, k, k}, options, {.executor = serial_executor(), .lse = true, .max = true});
  const Attention attend = compile(options);
  std::vector<char> good(8);
  at_once(good.size(), [&](std::size_t i) {
    bool same = true;
    for (int round = 0; round < 5; ++round) {
      const std::shared_ptr<Executor> executor =
          i % 3 == 0 ? nullptr : tbb_executor(static_cast<int>(i));
      const Forward y = attend.forward({q, k, k}, {.executor = executor, .lse = true, .max = true});
      same = same && same_bits(y.out, expected.out) && same_bits(y.lse, expected.lse) &&
             same_bits(y.max, expected.max);
    }
    good[i] = same ? 1 : 0;
  });
  EXPECT_EQ(good, std::vector<char>(good.size(), 1));
}

// Other dims, types and masks for everyone, so that all of them compile at the same time; some ask
// for the same kernels.
TEST(Callers, OfManyFunctions) {
  std::vector<char> good(8);
  at_once(good.size(), [&](std::size_t i) {
    const auto dim = static_cast<std::int64_t>(3 + i / 2);
    const DType type = i % 2 == 0 ? DType::f32 : DType::bf16;
    const Tensor x = random_tensor(i, type, {2, 2, 50, dim});
    Options options;
    options.score_mod = [](Score s, Index, Index h, Index q, Index kv) {
      return s + 0.03 * (h + 1) * (kv - q);
    };
    options.mask = mods::window(static_cast<std::int64_t>(i % 4 + 2));
    const Forward y = attention({x, x, x}, options, {.lse = true, .max = true});
    options.backend = Backend::reference;
    const Forward expected =
        attention({x, x, x}, options, {.executor = serial_executor(), .lse = true, .max = true});
    good[i] = test::largest_difference(y.out, expected.out) < (i % 2 == 0 ? 1e-5 : 2e-2) &&
                      test::largest_difference(y.lse, expected.lse) < 1e-4
                  ? 1
                  : 0;
  });
  EXPECT_EQ(good, std::vector<char>(good.size(), 1));
}

// One function, one held layout, captures that differ from caller to caller.
TEST(Callers, WithCapturesOfTheirOwn) {
  const Tensor x = random_tensor(1, DType::f32, {1, 3, 70, 8});
  const Tensor slopes = random_tensor(2, DType::f32, {3});
  Options options;
  options.score_mod = mods::alibi({"slopes", slopes});
  options.mask = mods::causal();
  const Attention attend = compile(options);
  const Layout layout = attend.layout({x, x, x});
  std::vector<Tensor> others, expected;
  for (std::uint64_t i = 0; i < 6; ++i) {
    others.push_back(random_tensor(10 + i, DType::f32, {3}));
    expected.push_back(attend
                           .forward({x, x, x}, {.captures = {{"slopes", ConstView(others.back())}},
                                                .executor = serial_executor()})
                           .out);
  }
  std::vector<char> good(others.size());
  at_once(good.size(), [&](std::size_t i) {
    bool same = true;
    for (int round = 0; round < 10; ++round) {
      const Forward y = attend.forward({x, x, x}, {.captures = {{"slopes", ConstView(others[i])}},
                                                   .layout = layout,
                                                   .lse = true,
                                                   .max = true});
      same = same && same_bits(y.out, expected[i]);
    }
    good[i] = same ? 1 : 0;
  });
  EXPECT_EQ(good, std::vector<char>(good.size(), 1));
}

// What fails for one caller fails for it alone.
TEST(Callers, WhoFailAlone) {
  const Tensor x = random_tensor(1, DType::f32, {1, 1, 60, 8});
  std::vector<float> table(60);
  Options options;
  options.score_mod = [table = Capture("table", View(table.data(), {60}))](
                          Score s, Index, Index, Index q, Index) { return s + table(q); };
  const Attention attend = compile(options);
  const Tensor expected = attend.forward({x, x, x}).out;
  std::vector<char> good(6);
  at_once(good.size(), [&](std::size_t i) {
    for (int round = 0; round < 5; ++round) {
      try {
        Call call;
        if (i % 2 == 0) call.captures = {{"table", View(table.data(), {31})}};
        const bool same = same_bits(attend.forward({x, x, x}, call).out, expected);
        good[i] = i % 2 == 1 && same ? 1 : 0;
      } catch (const Error&) {
        good[i] = i % 2 == 0 ? 1 : 0;
      }
    }
  });
  EXPECT_EQ(good, std::vector<char>(good.size(), 1));
}

}  // namespace
}  // namespace treadle
