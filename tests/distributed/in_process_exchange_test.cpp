// Threads as ranks: what every exchange must do, and what this one adds for tests.
#include "treadle/in_process_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <thread>

#include "exchange_checks.h"
#include "expect_error.h"

namespace treadle {
namespace {

using namespace std::chrono_literals;
using test::Bytes;
using test::ExchangeCheck;
using test::wait_for;
using Exchanges = std::vector<std::shared_ptr<Exchange>>;

// Each rank in a thread of its own; a rank's exception fails the test.
void on_all(const Exchanges& exchanges, const std::function<void(Exchange&)>& rank) {
  std::vector<std::thread> threads;
  for (const std::shared_ptr<Exchange>& exchange : exchanges) {
    threads.emplace_back([&] {
      try {
        rank(*exchange);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << exchange->rank() << " threw: " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class InProcess : public testing::TestWithParam<std::tuple<ExchangeCheck, int>> {};

TEST_P(InProcess, Does) {
  const auto& [check, ranks] = GetParam();
  for (const std::uint64_t seed : {1, 2}) {
    on_all(in_process_exchanges(ranks, {.seed = seed}), check.run);
  }
}

std::string check_name(const testing::TestParamInfo<InProcess::ParamType>& info) {
  const auto& [check, ranks] = info.param;
  return check.name + "_" + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, InProcess,
                         testing::Combine(testing::ValuesIn(test::exchange_checks()),
                                          testing::Range(1, 9)),
                         check_name);

// What does not need threads: ranks take turns here.
class OneThread : public testing::Test {
 protected:
  std::unique_ptr<Transfer> send(int from, int to) {
    const Exchange::Send message{to, out_};
    return ranks_[static_cast<std::size_t>(from)]->start({&message, 1}, {});
  }
  std::unique_ptr<Transfer> receive(int from, int to) {
    const Exchange::Receive message{from, in_};
    return ranks_[static_cast<std::size_t>(to)]->start({}, {&message, 1});
  }
  // Whether it is done in very many tests.
  static bool gets_done(Transfer& transfer) {
    std::vector<std::size_t> arrived;
    for (int i = 0; i < 1000; ++i) {
      if (transfer.test(arrived)) return true;
    }
    return false;
  }

  Exchanges ranks_ = in_process_exchanges(4, {.seed = 1});
  Bytes out_ = test::content(0, 0, 0, 8), in_ = Bytes(8);
};

TEST_F(OneThread, OfMessagesOfThreeRanksAnyIsFirst) {
  std::set<std::vector<std::size_t>> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    ranks_ = in_process_exchanges(4, {.seed = seed});
    Bytes in(3 * 8);
    const Exchange::Receive receives[] = {
        {1, std::span(in).first(8)}, {2, std::span(in).subspan(8, 8)}, {3, std::span(in).last(8)}};
    const auto one = send(1, 0), two = send(2, 0), three = send(3, 0);
    orders.insert(wait_for(*ranks_[0]->start({}, receives)));
  }
  EXPECT_EQ(orders.size(), 6U);
}

TEST_F(OneThread, SendsAreDoneWhenTaken) {
  const auto sent = send(0, 1);
  EXPECT_FALSE(gets_done(*sent));
  const auto received = receive(0, 1);
  EXPECT_TRUE(gets_done(*received));
  EXPECT_TRUE(gets_done(*sent));
  EXPECT_EQ(in_, out_);
}

TEST_F(OneThread, WhatWasGivenUpArrives) {
  const Bytes expected = out_;
  send(0, 1).reset();
  std::ranges::fill(out_, std::byte{0});
  ranks_[0].reset();
  wait_for(*receive(0, 1));
  EXPECT_EQ(in_, expected);
}

TEST_F(OneThread, DelayIsKept) {
  ranks_ = in_process_exchanges(2, {.delay = 30ms});
  const auto start = std::chrono::steady_clock::now();
  const auto sent = send(0, 1), again = send(0, 1);
  wait_for(*receive(0, 1));
  EXPECT_GE(std::chrono::steady_clock::now() - start, 30ms);
  wait_for(*receive(0, 1));
}

TEST_F(OneThread, SilentRanksAreNotHeard) {
  const auto earlier = send(2, 1);
  silence_rank(*ranks_[2]);
  const auto sent = send(2, 1), received = receive(2, 1);
  EXPECT_FALSE(gets_done(*received));
  EXPECT_FALSE(gets_done(*earlier));
  EXPECT_FALSE(gets_done(*sent));
  // It hears what others say.
  const auto to_silent = send(0, 2), heard = receive(0, 2);
  EXPECT_TRUE(gets_done(*heard));
  EXPECT_TRUE(gets_done(*to_silent));
}

TEST_F(OneThread, DeadRanksAreNamed) {
  const auto received = receive(2, 1), sent = send(0, 2), own = send(2, 3);
  std::vector<std::size_t> arrived;
  EXPECT_FALSE(gets_done(*received));
  kill_rank(*ranks_[2]);
  EXPECT_ERROR(wait_for(*received),
               "exchange: rank 1 waits for 8 bytes from rank 2, which is dead");
  EXPECT_ERROR(wait_for(*received),
               "exchange: rank 1 waits for 8 bytes from rank 2, which is dead");
  EXPECT_ERROR(wait_for(*sent), "exchange: rank 0 sends 8 bytes to rank 2, which is dead");
  EXPECT_ERROR(own->test(arrived), "exchange: rank 2 is dead");
  EXPECT_ERROR(send(2, 0), "exchange: rank 2 is dead");
  // Others go on.
  const auto one = send(0, 1), other = receive(0, 1);
  EXPECT_TRUE(gets_done(*other));
}

TEST_F(OneThread, DeadRanksEndGathers) {
  Bytes all(4 * 8);
  const auto gather = ranks_[0]->start_gather(out_, all);
  const auto one = ranks_[1]->start_gather(out_, all), three = ranks_[3]->start_gather(out_, all);
  kill_rank(*ranks_[2]);
  const std::string thrown = test::checks::thrown_by([&] { wait_for(*gather); });
  EXPECT_THAT(thrown, testing::HasSubstr("rank 2, which is dead"));
}

TEST_F(OneThread, RanksThatHaveLeftAreNamed) {
  const auto received = receive(3, 1);
  ranks_[3].reset();
  EXPECT_ERROR(wait_for(*received),
               "exchange: rank 1 waits for 8 bytes from rank 3, which has left");
}

TEST_F(OneThread, AbandonTellsAll) {
  const auto received = receive(3, 1);
  ranks_[2]->abandon("rank 3 has been silent for 600 s");
  ranks_[1]->abandon("a later reason");
  const std::string said = "exchange: rank 2 has given up: rank 3 has been silent for 600 s";
  EXPECT_ERROR(wait_for(*received), said);
  EXPECT_ERROR(send(0, 1), said);
  Bytes all(32);
  EXPECT_ERROR(ranks_[3]->start_gather(out_, all), said);
}

TEST_F(OneThread, GathersOfOtherSizesAreErrors) {
  ranks_ = in_process_exchanges(2);
  const Bytes nine(9);
  Bytes all(16), more(18);
  const auto one = ranks_[0]->start_gather(out_, all);
  const auto two = ranks_[1]->start_gather(nine, more);
  EXPECT_ERROR(
      wait_for(*one),
      "exchange: rank 0 received 9 bytes from rank 1 where it expects 8; a message has the "
      "size of its receive");
}

TEST(InProcessExchanges, NeedARank) {
  EXPECT_ERROR(in_process_exchanges(0), "in_process_exchanges: 0 ranks; there must be at least 1");
}

class Other final : public Exchange {
  [[nodiscard]] int rank() const override { return 5; }
  [[nodiscard]] int ranks() const override { return 6; }
  std::unique_ptr<Transfer> start(std::span<const Send>, std::span<const Receive>) override {
    return nullptr;
  }
  std::unique_ptr<Transfer> start_gather(std::span<const std::byte>,
                                         std::span<std::byte>) override {
    return nullptr;
  }
  void abandon(const std::string&) override {}
};

TEST(InProcessExchanges, OnlyThreadsAreKilled) {
  Other other;
  EXPECT_ERROR(kill_rank(other), "exchange: rank 5 is not a thread");
}

}  // namespace
}  // namespace treadle
