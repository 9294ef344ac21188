// Processes as ranks: what every exchange must do, and what is particular to MPI.
#include "mpi/exchange.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <thread>

#include "distributed/channel.h"
#include "exchange_checks.h"
#include "expect_error.h"
#include "fuzz.h"
#include "mpi/communicator.h"
#include "treadle/mpi.h"

namespace treadle {
namespace {

using namespace std::chrono_literals;
using test::Bytes;
using test::content;
using test::wait_for;

// Most messages are neither copied nor of one part.
constexpr mpi::Limits small{.part = 1000, .copied = 30, .gathered = 4000};

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

class Checks : public testing::TestWithParam<test::ExchangeCheck> {};

TEST_P(Checks, Pass) { GetParam().run(*mpi_exchange(MPI_COMM_WORLD)); }
TEST_P(Checks, PassInParts) { GetParam().run(*mpi::exchange(MPI_COMM_WORLD, small)); }

// Ranks of the communicator that are not those of the job.
TEST_P(Checks, PassInReverse) {
  MPI_Comm reverse = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank(), &reverse);
  const auto exchange = mpi_exchange(reverse);
  MPI_Comm_free(&reverse);
  EXPECT_EQ(exchange->rank(), exchange->ranks() - 1 - world_rank());
  GetParam().run(*exchange);
}

INSTANTIATE_TEST_SUITE_P(All, Checks, testing::ValuesIn(test::exchange_checks()),
                         [](const auto& info) { return info.param.name; });

class SeveralRanks : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<Transfer> send(const Bytes& bytes) const {
    const Exchange::Send message{next_, bytes};
    return exchange_->start({&message, 1}, {});
  }
  [[nodiscard]] std::unique_ptr<Transfer> receive(Bytes& bytes) const {
    const Exchange::Receive message{last_, bytes};
    return exchange_->start({}, {&message, 1});
  }

  std::shared_ptr<Exchange> exchange_ = mpi::exchange(MPI_COMM_WORLD, small);
  int rank_ = exchange_->rank(), ranks_ = exchange_->ranks();
  int next_ = (rank_ + 1) % ranks_, last_ = (rank_ + ranks_ - 1) % ranks_;
};

// A program that receives anything from anybody gets its own messages alone.
TEST_F(SeveralRanks, NeverMeetsMessagesOfTheProgram) {
  int sent = rank_, got = -1;
  MPI_Request requests[2];
  MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
  test::checks::every_pair(*exchange_);
  EXPECT_EQ(got, -1);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Isend(&sent, 1, MPI_INT, next_, 2, MPI_COMM_WORLD, &requests[1]);
  test::checks::random_traffic(*exchange_);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  EXPECT_EQ(got, last_);
}

// Nothing of a big send is copied. Ended before its receive begins, it still arrives as it was.
TEST_F(SeveralRanks, EndedSendsArriveAsTheyWere) {
  const Bytes expected = content(last_, rank_, 0, 3'000'000);
  Bytes out = content(rank_, next_, 0, 3'000'000), in(out.size());
  std::unique_ptr<Transfer> received;
  const bool is_late = rank_ % 2 == 1;
  if (is_late) {
    std::this_thread::sleep_for(50ms);
    received = receive(in);
  }
  auto sent = send(out);
  if (!is_late) received = receive(in);
  sent.reset();
  std::ranges::fill(out, std::byte{9});
  wait_for(*received);
  EXPECT_EQ(in == expected, true);
}

TEST_F(SeveralRanks, EndedReceivesAreNotWrittenTo) {
  for (const std::size_t size : {8, 900, 500'000}) {
    const Bytes out = content(rank_, next_, 0, size);
    Bytes in(size);
    receive(in).reset();
    const auto received = receive(in);
    const auto sent = send(out), again = send(out);
    while (Bytes(size) == in) {
      std::vector<std::size_t> arrived;
      received->test(arrived);
    }
    // The first was thrown away, and what was written is of the second.
    wait_for(*received);
    EXPECT_EQ(in == content(last_, rank_, 0, size), true) << size;
    wait_for(*sent);
    wait_for(*again);
  }
}

// A part of a message has come when its receive ends.
TEST_F(SeveralRanks, ReceivesEndHalfWay) {
  const Bytes out = content(rank_, next_, 0, 200'000);
  for (int round = 0; round < 20; ++round) {
    Bytes in(out.size());
    auto received = receive(in);
    const auto sent = send(out);
    std::vector<std::size_t> arrived;
    for (int i = 0; i < round; ++i) received->test(arrived);
    received.reset();
    const Bytes kept = in;
    wait_for(*sent);
    test::checks::every_pair(*exchange_);
    EXPECT_EQ(in == kept, true) << "round " << round;
  }
}

TEST_F(SeveralRanks, EndedGathersLetLaterOnesBe) {
  for (const std::size_t size : {8, 100, 30'000}) {
    Bytes all(size * static_cast<std::size_t>(ranks_)), kept = all;
    {
      const Bytes own = content(rank_, 0, 0, size);
      const auto gather = exchange_->start_gather(own, all);
      std::vector<std::size_t> arrived;
      if (rank_ % 2 == 0) gather->test(arrived);
      if (rank_ == 0) gather->test(arrived);
      kept = all;
    }
    const Bytes own = content(rank_, 0, 1, size);
    Bytes later(all.size());
    wait_for(*exchange_->start_gather(own, later));
    EXPECT_EQ(all == kept, true) << size;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto begin = later.begin() + static_cast<std::ptrdiff_t>(size) * rank;
      EXPECT_EQ(std::ranges::equal(content(rank, 0, 1, size), std::span(&*begin, size)), true);
    }
  }
}

// On all ranks, and the next one is well.
TEST_F(SeveralRanks, GathersOfOtherSizesAreErrors) {
  for (const auto& [most, odd] : {std::pair<std::size_t, std::size_t>{8, 9}, {5000, 4}, {8, 0}}) {
    const int odd_rank = ranks_ - 1;
    const Bytes own(rank_ == odd_rank ? odd : most);
    Bytes all(own.size() * static_cast<std::size_t>(ranks_));
    const auto gather = exchange_->start_gather(own, all);
    const bool is_odd = rank_ == odd_rank;
    EXPECT_ERROR(
        wait_for(*gather),
        fmt::format("exchange: rank {} received {} bytes from rank {} where it expects {}; "
                    "a message has the size of its receive",
                    rank_, is_odd ? most : odd, is_odd ? 0 : odd_rank, own.size()));
    EXPECT_THROW(wait_for(*gather), Error) << "once more";
  }
  test::checks::gathers(*exchange_);
}

// Whoever waits moves messages on: any thread, one at a time.
TEST_F(SeveralRanks, ThreadsTakeTurns) {
  distributed::Channel channel(mpi_exchange(MPI_COMM_WORLD), 60s);
  for (int round = 0; round < 6; ++round) {
    distributed::Mail mail(channel, "test");
    for (int other = 0; other < ranks_; ++other) {
      if (other == rank_) continue;
      for (int i = 0; i < 6; ++i) {
        const auto size = static_cast<std::size_t>(1 + 20'000 * i);
        distributed::Buffer bytes(std::ssize(Bytes(size)));
        std::ranges::copy(content(rank_, other, i, size), bytes.data());
        mail.sends.push_back({other, std::move(bytes)});
        mail.receives.push_back({other, distributed::Buffer(static_cast<std::int64_t>(size))});
      }
    }
    mail.start();
    std::vector<std::thread> threads;
    for (std::size_t first = 0; first < 3; ++first) {
      threads.emplace_back([&, first] {
        for (std::size_t i = first; i < mail.receives.size(); i += 3) mail.await(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    mail.finish();
    for (std::size_t i = 0; i < mail.receives.size(); ++i) {
      const auto& [other, bytes] = mail.receives[i];
      const Bytes expected = content(other, rank_, static_cast<int>(i % 6), bytes.bytes().size());
      EXPECT_EQ(std::ranges::equal(bytes.bytes(), expected), true) << i;
    }
  }
}

TEST_F(SeveralRanks, TransfersOutliveTheirExchange) {
  const Bytes out = content(rank_, next_, 0, 100'000);
  Bytes in(out.size());
  const auto received = receive(in), sent = send(out);
  exchange_.reset();
  wait_for(*received);
  wait_for(*sent);
  EXPECT_EQ(in == content(last_, rank_, 0, in.size()), true);
}

// MPI has room for some 2000 communicators.
TEST_F(SeveralRanks, ExchangesAreFreed) {
  const int count = ranks_ == 2 && test::fuzz_size() == test::FuzzSize::full ? 2500 : 20;
  for (int i = 0; i < count; ++i) {
    Bytes one(1), all(static_cast<std::size_t>(ranks_));
    const auto exchange = mpi_exchange(MPI_COMM_WORLD);
    (void)exchange->start_gather(one, all);
  }
}

TEST_F(SeveralRanks, ErrorsOfMpiNameRankAndCall) {
  const mpi::Communicator comm(MPI_COMM_WORLD);
  const auto send_to = [&](int rank) {
    comm.check(MPI_Send(nullptr, 0, MPI_BYTE, rank, 1, comm.get()),
               "MPI_Send of {} bytes to rank {}", 0, rank);
  };
  const std::string thrown = test::checks::thrown_by([&] { send_to(1000); }),
                    start =
                        fmt::format("exchange: rank {}: MPI_Send of 0 bytes to rank 1000: ", rank_);
  EXPECT_EQ(thrown.substr(0, start.size()), start) << thrown;
  EXPECT_GT(thrown.size(), start.size() + 5) << "MPI says what is wrong";
}

// More than an int can count, in parts as large as they come.
TEST(TwoRanksWithMuchMemory, SendMoreThanTwoGigabytes) {
  const auto exchange = mpi_exchange(MPI_COMM_WORLD);
  Bytes bytes((std::size_t{2} << 30) + 12'345);
  const auto at = [](std::size_t i) {
    return static_cast<std::byte>(i * 0x9E3779B97F4A7C15 >> 40);
  };
  if (exchange->rank() == 0) {
    for (std::size_t i = 0; i < bytes.size(); i += 61) bytes[i] = at(i);
    const Exchange::Send send{1, bytes};
    wait_for(*exchange->start({&send, 1}, {}));
  } else {
    const Exchange::Receive receive{0, bytes};
    wait_for(*exchange->start({}, {&receive, 1}));
    for (std::size_t i = 0; i < bytes.size(); i += 61) ASSERT_EQ(bytes[i], at(i)) << i;
  }
}

TEST(MpiExchange, NeedsAGroupOfRanks) {
  EXPECT_ERROR(mpi_exchange(MPI_COMM_NULL), "mpi_exchange: MPI_COMM_NULL has no ranks");
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 1) return;
  const int color = world_rank() == 0 ? 0 : 1;
  MPI_Comm half = MPI_COMM_NULL, both = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, color, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - color, 5, &both);
  EXPECT_ERROR(
      mpi_exchange(both),
      "mpi_exchange: the communicator connects two groups of ranks; it must be of one group");
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
}

}  // namespace
}  // namespace treadle
