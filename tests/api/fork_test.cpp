// A call in a process that was forked while another thread was in a call of the same function.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "child_process.h"
#include "fuzz.h"
#include "plain_attention.h"
#include "sanitizers.h"
#include "treadle/attention.h"
#include "treadle/mods.h"

namespace treadle {
namespace {

TEST(Fork, AChildComputesWhatItsParentDoes) {
  if (test::thread_sanitizer) {
    GTEST_SKIP() << "ThreadSanitizer starts no threads in a child of a process with threads";
  }
  const Tensor q = test::random_tensor(1, DType::f32, {1, 2, 40, 8});
  const Tensor k = test::random_tensor(2, DType::f32, {1, 2, 50, 8});
  const Tensor v = test::random_tensor(3, DType::f32, {1, 2, 50, 8});
  for (int round = 0; round < test::fuzz_count(40); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random = test::rng(seed);
    Options options;
    options.score_mod = mods::soft_cap(10.0 + round + 100 * static_cast<double>(seed % 1000));
    options.mask = mods::causal();
    const Attention attention = compile(options);
    Tensor expected;
    std::thread other([&] { expected = attention.forward({q, k, v}).out; });
    std::this_thread::sleep_for(std::chrono::microseconds(test::random_int(random, 0, 100000)));
    int to_parent[2];
    ASSERT_EQ(pipe(to_parent), 0);
    const pid_t child = test::start_child([&] {
      const Tensor out = attention.forward({q, k, v}).out;
      const auto bytes = std::as_bytes(out.data<float>());
      return write(to_parent[1], bytes.data(), bytes.size()) == std::ssize(bytes) ? 0 : 1;
    });
    const test::Ended ended = test::wait_for(child);
    other.join();
    ASSERT_EQ(ended.exit_code, 0) << ended.text();
    std::vector<std::byte> got(expected.data<float>().size_bytes());
    ASSERT_EQ(read(to_parent[0], got.data(), got.size()), std::ssize(got));
    EXPECT_EQ(std::memcmp(got.data(), expected.data<float>().data(), got.size()), 0);
    close(to_parent[0]);
    close(to_parent[1]);
  }
}

// Calls take locks for moments only: of kernels, workspaces, terms and choices.
TEST(Fork, WhileOtherThreadsMakeShortCalls) {
  if (test::thread_sanitizer) {
    GTEST_SKIP() << "ThreadSanitizer starts no threads in a child of a process with threads";
  }
  const Tensor q = test::random_tensor(1, DType::f32, {1, 1, 4, 8});
  Options options;
  options.mask = parse("q >= kv && (q - kv < 2 || (q - kv) % 3 == 0)");
  const Attention attention = compile(options);
  const auto works = [&] { return attention.forward({q, q, q}).out.shape() == q.shape(); };
  ASSERT_TRUE(works());
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (int t = 0; t < 2; ++t) {
    others.emplace_back([&] {
      while (!stop) works();
    });
  }
  for (int round = 0; round < 400; ++round) {
    const test::Ended ended = test::run_child([&] { return works() ? 0 : 1; });
    EXPECT_EQ(ended.exit_code, 0) << ended.text();
    if (ended.exit_code != 0) break;
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace treadle
