// Call::stop: calls and layouts of 128k tokens that somebody ends from another thread.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "plain_attention.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

using test::random_tensor;
using test::same_bits;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t tokens = 131072;

// Runs `call(stop)` until it throws Stopped, which is asked for after 50 ms.
void expect_stopped(const char* name, const std::function<void(std::stop_token)>& call) {
  std::stop_source source;
  Clock::time_point asked;
  std::thread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    asked = Clock::now();
    source.request_stop();
  });
  EXPECT_THROW(call(source.get_token()), Stopped) << name;
  const Clock::time_point ended = Clock::now();
  user.join();
  std::cout << name << " ended "
            << std::chrono::duration_cast<std::chrono::milliseconds>(ended - asked).count()
            << " ms after the stop\n";
}

// Zeros: what is computed does not matter, and nothing else takes long.
struct LongCall {
  Tensor q = Tensor(DType::f32, {1, 1, tokens, 64});
  Tensor lse = Tensor(DType::f32, {1, 1, tokens});
  Tensor out = q.clone(), dk = q.clone(), dv = q.clone();
  Attention attend = compile(options());
  Layout layout = attend.layout({q, q, q});

  static Options options() {
    Options options;
    options.mask = mods::causal();
    return options;
  }
};

TEST(Stop, Forward) {
  LongCall c;
  const Tensor few(DType::f32, {1, 1, 300, 64});
  (void)c.attend.forward({few, few, few});  // compiles
  for (const int threads : {1, 2}) {
    expect_stopped("forward", [&](const std::stop_token& stop) {
      c.attend.forward_into({c.out, std::nullopt, std::nullopt}, {c.q, c.q, c.q},
                            {.executor = tbb_executor(threads), .layout = c.layout, .stop = stop});
    });
  }
}

TEST(Stop, Backward) {
  LongCall c;
  const Tensor few(DType::f32, {1, 1, 300, 64});
  const Tensor few_lse(DType::f32, {1, 1, 300});
  (void)c.attend.backward({few, few, few}, {few, few_lse}, few);  // compiles
  for (const int threads : {1, 2}) {
    expect_stopped("backward", [&](const std::stop_token& stop) {
      c.attend.backward_into({c.out, c.dk, c.dv, {}}, {c.q, c.q, c.q}, {c.q, c.lse}, c.q,
                             std::nullopt,
                             {.executor = tbb_executor(threads), .layout = c.layout, .stop = stop});
    });
  }
}

// A mask that no analysis helps with: every pair is evaluated.
TEST(Stop, Layout) {
  Options options;
  options.mask = [](Index, Index, Index q, Index kv) { return q * q * 7 % 1009 < kv * kv % 1013; };
  const Attention attend = compile(options);
  const TensorSpec x(DType::f32, {1, 1, tokens, 64});
  for (const int threads : {1, 2}) {
    expect_stopped("layout", [&](const std::stop_token& stop) {
      (void)attend.layout(x, x, x, {.executor = tbb_executor(threads), .stop = stop});
    });
  }
}

TEST(Stop, Reference) {
  Options options = LongCall::options();
  options.backend = Backend::reference;
  const Attention attend = compile(options);
  const Tensor q = random_tensor(1, DType::f32, {1, 1, 8192, 16});
  const Tensor lse(DType::f32, {1, 1, 8192});
  expect_stopped("reference forward", [&](const std::stop_token& stop) {
    (void)attend.forward({q, q, q}, {.stop = stop});
  });
  expect_stopped("reference backward", [&](const std::stop_token& stop) {
    (void)attend.backward({q, q, q}, {q, lse}, q, std::nullopt, {.stop = stop});
  });
}

TEST(Stop, BeforeTheCallBegins) {
  const Tensor q = random_tensor(1, DType::f32, {1, 1, 30, 8});
  const Attention attend = compile({});
  std::stop_source source;
  const Tensor expected = attend.forward({q, q, q}, {.stop = source.get_token()}).out;
  source.request_stop();
  Tensor out(DType::f32, {1, 1, 30, 8});
  EXPECT_THROW(attend.forward_into({out, std::nullopt, std::nullopt}, {q, q, q},
                                   {.stop = source.get_token()}),
               Stopped);
  EXPECT_TRUE(same_bits(out, Tensor(DType::f32, {1, 1, 30, 8})));
  EXPECT_TRUE(same_bits(attend.forward({q, q, q}).out, expected));
}

// A call that was stopped leaves nothing behind.
TEST(Stop, NextCallsAreRight) {
  const Tensor q = random_tensor(1, DType::f32, {1, 4, 700, 16});
  const Tensor k = random_tensor(2, DType::f32, {1, 2, 2500, 16});
  const Tensor slopes = random_tensor(3, DType::f32, {4});
  Options options;
  options.score_mod = mods::alibi({"slopes", slopes});
  options.gradients = {"slopes"};
  const Attention attend = compile(options);
  const Forward y = attend.forward({q, k, k}, {.lse = true});
  const Backward g = attend.backward({q, k, k}, {y.out, y.lse}, q);
  for (int delay = 0; delay < 40; ++delay) {
    std::stop_source source;
    std::thread user([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(200 * delay));
      source.request_stop();
    });
    const Call call{.executor = tbb_executor(2), .stop = source.get_token()};
    try {
      const Forward again = attend.forward({q, k, k}, call);
      EXPECT_TRUE(same_bits(again.out, y.out));
      (void)attend.backward({q, k, k}, {y.out, y.lse}, q, std::nullopt, call);
    } catch (const Stopped&) {
    }
    user.join();
    EXPECT_TRUE(same_bits(attend.forward({q, k, k}).out, y.out));
    EXPECT_TRUE(
        same_bits(attend.backward({q, k, k}, {y.out, y.lse}, q).of("slopes"), g.of("slopes")));
  }
}

}  // namespace
}  // namespace treadle
