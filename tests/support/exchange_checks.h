// What every Exchange must do: checks that all ranks run together, each on its own exchange.
//
//   for (const ExchangeCheck& check : exchange_checks) check.run(*exchange);
//
// tests/distributed runs them on threads, tests/mpi as processes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "treadle/error.h"
#include "treadle/exchange.h"

namespace treadle::test {

using Bytes = std::vector<std::byte>;

struct ExchangeCheck {
  std::string name;
  void (*run)(Exchange&);
};

inline void PrintTo(const ExchangeCheck& check, std::ostream* out) { *out << check.name; }

// Until all is done; the receives that arrived, in their order. Fails instead of hanging.
inline std::vector<std::size_t> wait_for(Transfer& transfer) {
  std::vector<std::size_t> arrived;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!transfer.test(arrived)) {
    if (std::chrono::steady_clock::now() > end) {
      throw std::runtime_error("messages have not arrived for 60 s; " +
                               std::to_string(arrived.size()) + " have");
    }
    std::this_thread::yield();
  }
  return arrived;
}

// The bytes of a message: whoever knows who sends which message to whom knows them.
inline Bytes content(int from, int to, int number, std::size_t size) {
  Bytes bytes(size);
  auto state = static_cast<std::uint32_t>(1 + from + 64 * (to + 64 * number));
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

// The messages of one transfer of one rank, with their memory.
class Messages {
 public:
  void send(int to, Bytes bytes) { sent_.emplace_back(to, std::move(bytes)); }
  void receive(int from, Bytes expected) {
    received_.emplace_back(from, Bytes(expected.size()));
    expected_.push_back(std::move(expected));
  }

  [[nodiscard]] std::unique_ptr<Transfer> start(Exchange& exchange) {
    std::vector<Exchange::Send> sends;
    std::vector<Exchange::Receive> receives;
    for (const auto& [rank, bytes] : sent_) sends.push_back({rank, bytes});
    for (auto& [rank, bytes] : received_) receives.push_back({rank, bytes});
    return exchange.start(sends, receives);
  }

  // That each receive arrived once, and with its bytes.
  void finish(Transfer& transfer) {
    std::vector<std::size_t> arrived = wait_for(transfer);
    std::ranges::sort(arrived);
    ASSERT_EQ(arrived.size(), received_.size());
    for (std::size_t i = 0; i < received_.size(); ++i) {
      EXPECT_EQ(arrived[i], i);
      EXPECT_EQ(received_[i].second == expected_[i], true)
          << "message " << i << ", from rank " << received_[i].first;
    }
    EXPECT_TRUE(transfer.test(arrived));
    EXPECT_EQ(arrived.size(), received_.size()) << "arrived again";
  }

 private:
  std::vector<std::pair<int, Bytes>> sent_, received_;
  std::vector<Bytes> expected_;
};

namespace checks {

// A message from every rank to every other, of another size each.
inline void every_pair(Exchange& exchange) {
  const int self = exchange.rank();
  const auto size = [](int from, int to) { return static_cast<std::size_t>(1 + 7 * from + to); };
  Messages messages;
  for (int other = 0; other < exchange.ranks(); ++other) {
    if (other == self) continue;
    messages.send(other, content(self, other, 0, size(self, other)));
    messages.receive(other, content(other, self, 0, size(other, self)));
  }
  messages.finish(*messages.start(exchange));
}

// Large enough that no transport keeps a copy, both ways at once.
inline void large(Exchange& exchange) {
  const int self = exchange.rank();
  Messages messages;
  for (int other = 0; other < exchange.ranks(); ++other) {
    if (other == self) continue;
    messages.send(other, content(self, other, 1, 100'001));
    messages.receive(other, content(other, self, 1, 100'001));
  }
  messages.finish(*messages.start(exchange));
}

// Of a rank to the next, in several transfers, which are waited for from the last to the first.
inline void in_order(Exchange& exchange) {
  const int self = exchange.rank(), ranks = exchange.ranks();
  if (ranks == 1) return;
  const int next = (self + 1) % ranks, last = (self + ranks - 1) % ranks;
  std::vector<Messages> all(5);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (int number = 0; Messages & messages : all) {
    for (int i = 0; i < 4; ++i, ++number) {
      messages.send(next, content(self, next, number, 40));
      messages.receive(last, content(last, self, number, 40));
    }
    transfers.push_back(messages.start(exchange));
  }
  for (std::size_t i = all.size(); i-- > 0;) all[i].finish(*transfers[i]);
}

// Several gathers and messages at a time, the last one finished first.
inline void gathers(Exchange& exchange) {
  const int self = exchange.rank(), ranks = exchange.ranks();
  const std::vector<std::size_t> sizes = {8, 1, 0, 100'000, 8};
  std::vector<Bytes> own, all, expected;
  for (int number = 0; const std::size_t size : sizes) {
    own.push_back(content(self, 0, number, size));
    all.emplace_back(size * static_cast<std::size_t>(ranks));
    expected.emplace_back();
    for (int rank = 0; rank < ranks; ++rank) {
      const Bytes part = content(rank, 0, number, size);
      expected.back().insert(expected.back().end(), part.begin(), part.end());
    }
    ++number;
  }
  Messages between;
  if (ranks > 1) {
    between.send((self + 1) % ranks, content(self, 0, 9, 16));
    between.receive((self + ranks - 1) % ranks, content((self + ranks - 1) % ranks, 0, 9, 16));
  }
  std::unique_ptr<Transfer> messages;
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i == 2) messages = between.start(exchange);
    transfers.push_back(exchange.start_gather(own[i], all[i]));
  }
  for (std::size_t i = sizes.size(); i-- > 0;) {
    EXPECT_EQ(wait_for(*transfers[i]), std::vector<std::size_t>{}) << "a gather has no receives";
    EXPECT_EQ(all[i] == expected[i], true) << "gather " << i;
  }
  between.finish(*messages);
}

inline void nothing(Exchange& exchange) {
  std::vector<std::size_t> arrived;
  EXPECT_TRUE(exchange.start({}, {})->test(arrived));
  EXPECT_EQ(arrived.size(), 0U);
}

// Any sizes between any ranks, in any number of transfers and gathers that end in any order.
inline void random_traffic(Exchange& exchange) {
  const int self = exchange.rank(), ranks = exchange.ranks();
  for (int round = 0; round < fuzz_count(40); ++round) {
    const std::uint64_t seed = fuzz_seed(round);
    SCOPED_TRACE("TREADLE_TEST_SEED=" + std::to_string(seed));  // seed_text is for one thread
    std::mt19937_64 all_know = rng(seed);
    std::mt19937_64 own = rng(seed + static_cast<std::uint64_t>(self));
    std::vector<Messages> steps(1 + all_know() % 4);
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (Messages& messages : steps) {
      const std::uint64_t count = all_know() % 20;
      for (std::uint64_t i = 0; i < count && ranks > 1; ++i) {
        const int from = static_cast<int>(all_know() % static_cast<unsigned>(ranks));
        const int to =
            (from + 1 + static_cast<int>(all_know() % static_cast<unsigned>(ranks - 1))) % ranks;
        const std::size_t size = 1 + all_know() % (all_know() % 8 == 0 ? 50'000 : 100);
        const Bytes bytes = content(from, to, static_cast<int>(i), size);
        if (from == self) messages.send(to, bytes);
        if (to == self) messages.receive(from, bytes);
      }
      transfers.push_back(messages.start(exchange));
    }
    std::vector<std::size_t> order(steps.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::shuffle(order, own);
    for (const std::size_t i : order) steps[i].finish(*transfers[i]);
  }
}

// Transfers that end early, before and after their messages have come: nobody touches their memory
// any more, and what is sent later arrives where it should.
inline void given_up(Exchange& exchange) {
  const int self = exchange.rank(), ranks = exchange.ranks();
  if (ranks == 1) return;
  const int next = (self + 1) % ranks, last = (self + ranks - 1) % ranks;
  const std::size_t sizes[] = {8, 40'000};
  for (int number = 0; number < 8; ++number) {
    const std::size_t size = sizes[number % 2];
    Bytes out = content(self, next, number, size), in(size), kept(size, std::byte{7});
    {
      const Exchange::Send send{next, out};
      const Exchange::Receive receive{last, in};
      const auto transfer = exchange.start({&send, 1}, {&receive, 1});
      std::vector<std::size_t> arrived;
      if ((number + self) % 4 < 2) transfer->test(arrived);
    }
    in = kept;
    std::ranges::fill(out, std::byte{9});
    Messages later;
    later.send(next, content(self, next, 100 + number, size + 1));
    later.receive(last, content(last, self, 100 + number, size + 1));
    later.finish(*later.start(exchange));
    EXPECT_EQ(in == kept, true) << "of " << size << " bytes, number " << number;
  }
}

// What is thrown by a transfer of one message, sent by a rank to the next.
inline std::string thrown_by_sizes(Exchange& exchange, std::size_t sent, std::size_t expected) {
  const int self = exchange.rank(), ranks = exchange.ranks();
  const Bytes out = content(self, 0, 0, sent);
  Bytes in(expected);
  const Exchange::Send send{(self + 1) % ranks, out};
  const Exchange::Receive receive{(self + ranks - 1) % ranks, in};
  const auto sends = exchange.start({&send, 1}, {});
  const auto receives = exchange.start({}, {&receive, 1});
  try {
    wait_for(*receives);
  } catch (const Error& error) {
    wait_for(*sends);
    return error.what();
  }
  return "nothing";
}

// A message that is not as long as its receive is an error at the receiver; the next one is well.
inline void wrong_size(Exchange& exchange) {
  const int ranks = exchange.ranks(), last = (exchange.rank() + ranks - 1) % ranks;
  if (ranks == 1) return;
  for (const auto& [sent, expected] : {std::pair<std::size_t, std::size_t>{32, 8}, {8, 32}}) {
    const std::string thrown = thrown_by_sizes(exchange, sent, expected);
    const std::string start = "exchange: rank " + std::to_string(exchange.rank()) + " received " +
                              std::to_string(sent) + " bytes from rank " + std::to_string(last) +
                              " where it expects " + std::to_string(expected);
    EXPECT_EQ(thrown.substr(0, start.size()), start) << thrown;
  }
  EXPECT_EQ(thrown_by_sizes(exchange, 8, 8), "nothing");
}

inline std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

inline void bad_calls(Exchange& exchange) {
  const int self = exchange.rank(), ranks = exchange.ranks();
  Bytes bytes(8);
  const auto send = [&](int rank, std::size_t size) {
    const Exchange::Send message{rank, std::span(bytes).first(size)};
    return thrown_by([&] { (void)exchange.start({&message, 1}, {}); });
  };
  const auto receive = [&](int rank, std::size_t size) {
    const Exchange::Receive message{rank, std::span(bytes).first(size)};
    return thrown_by([&] { (void)exchange.start({}, {&message, 1}); });
  };
  const std::string me = std::to_string(self), others = std::to_string(ranks - 1);
  EXPECT_EQ(send(ranks, 8), "exchange: a send names rank " + std::to_string(ranks) +
                                "; there are ranks 0 to " + others);
  EXPECT_EQ(receive(-1, 8), "exchange: a receive names rank -1; there are ranks 0 to " + others);
  EXPECT_EQ(receive(self, 8), "exchange: rank " + me + " has a receive to or from itself");
  if (ranks > 1) {
    EXPECT_EQ(send((self + 1) % ranks, 0), "exchange: rank " + me +
                                               " has a send of 0 bytes with rank " +
                                               std::to_string((self + 1) % ranks));
  }
  EXPECT_EQ(thrown_by([&] { (void)exchange.start_gather(std::span(bytes).first(3), bytes); }),
            8 == 3 * ranks ? "nothing"
                           : "exchange: rank " + me + " gathers 3 bytes of each of " +
                                 std::to_string(ranks) + " ranks into 8 bytes");
}

}  // namespace checks

inline const std::vector<ExchangeCheck>& exchange_checks() {
  static const std::vector<ExchangeCheck> all = {
      {"every_pair", checks::every_pair}, {"large", checks::large},
      {"in_order", checks::in_order},     {"gathers", checks::gathers},
      {"nothing", checks::nothing},       {"random_traffic", checks::random_traffic},
      {"given_up", checks::given_up},     {"wrong_size", checks::wrong_size},
      {"bad_calls", checks::bad_calls},
  };
  return all;
}

}  // namespace treadle::test
