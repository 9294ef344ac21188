// The exchange and its transfers. Messages are in lanes.cpp, gathers in gathers.cpp.
#include "mpi/exchange.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/exchange_checks.h"
#include "mpi/communicator.h"
#include "mpi/gathers.h"
#include "mpi/lanes.h"
#include "mpi/requests.h"
#include "treadle/mpi.h"

namespace treadle::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// What an exchange and its transfers share; the last of them ends it.
class Traffic {
 public:
  Traffic(MPI_Comm ranks, const Limits& of)
      : comm(ranks),
        limits(of),
        requests(comm),
        lanes(comm, of, requests),
        gathers(comm, of, requests) {}

  // What is still on its way, all of it in memory of ours, has a moment to get there.
  ~Traffic() {
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(500);
    try {
      while (Communicator::is_alive() && !requests.empty() && Clock::now() < end) move_on();
    } catch (const std::exception&) {
      // Nobody is left to be told.
    }
  }

  void check_alive() const {
    if (!Communicator::is_alive()) {
      fail("exchange: rank {} is used after MPI_Finalize", comm.rank());
    }
  }

  void move_on() {
    lanes.match();
    requests.test();
    gathers.move_on();
  }

  const Communicator comm;
  const Limits limits;
  Requests requests;
  Lanes lanes;
  Gathers gathers;
  std::mutex mutex;  // transfers may end in any thread
};

class MpiTransfer final : public Transfer {
 public:
  explicit MpiTransfer(std::shared_ptr<Traffic> traffic) : traffic_(std::move(traffic)) {}

  ~MpiTransfer() override {
    const std::lock_guard lock(traffic_->mutex);
    give_up();
  }

  void begin(std::span<const Exchange::Send> sends, std::span<const Exchange::Receive> receives) {
    sends_.reserve(sends.size());
    receives_.reserve(receives.size());
    reported_.resize(receives.size());
    for (const Exchange::Receive& receive : receives) {
      receives_.push_back(std::make_shared<Incoming>());
      traffic_->lanes.receive(receives_.back(), receive.rank, receive.bytes);
    }
    for (const Exchange::Send& send : sends) {
      sends_.push_back(std::make_shared<Outgoing>());
      traffic_->lanes.send(sends_.back(), send.rank, send.bytes);
    }
  }

  void begin_gather(std::span<const std::byte> own, std::span<std::byte> all) {
    gather_ = std::make_shared<Gather>();
    traffic_->gathers.start(gather_, own, all);
  }

  bool test(std::vector<std::size_t>& arrived) override {
    const std::lock_guard lock(traffic_->mutex);
    if (!is_over()) {
      traffic_->check_alive();
      traffic_->move_on();
    }
    check();
    for (std::size_t i = 0; i < receives_.size(); ++i) {
      if (!receives_[i]->is_over() || reported_[i]) continue;
      arrived.push_back(i);
      reported_[i] = true;
    }
    return is_over();
  }

 private:
  template <class Each>
  void for_each(const Each& each) const {
    for (const std::shared_ptr<Incoming>& receive : receives_) each(*receive);
    for (const std::shared_ptr<Outgoing>& send : sends_) each(*send);
    if (gather_ != nullptr) each(*gather_);
  }

  [[nodiscard]] bool is_over() const {
    bool over = true;
    for_each([&](const Work& work) { over = over && work.is_over(); });
    return over;
  }

  void check() const {
    for_each([](const Work& work) {
      if (work.is_over() && !work.error.empty()) throw Error(work.error);
    });
  }

  void give_up() noexcept;

  // Whether MPI is at work on memory of the caller's.
  [[nodiscard]] bool is_touched() const {
    const auto is_in_flight = [](const auto& work) { return work->in_flight > 0; };
    return std::ranges::any_of(receives_, is_in_flight) ||
           std::ranges::any_of(sends_, [](const std::shared_ptr<Outgoing>& send) {
             return send->in_flight > 0 && !send->copied;
           });
  }

  std::shared_ptr<Traffic> traffic_;
  std::vector<std::shared_ptr<Outgoing>> sends_;
  std::vector<std::shared_ptr<Incoming>> receives_;
  std::shared_ptr<Gather> gather_;
  std::vector<bool> reported_;
};

// Each message still meets its own receive, so that those of later transfers do, too.
void MpiTransfer::give_up() noexcept {
  for_each([](Work& work) { work.wanted = false; });
  const Clock::time_point end = Clock::now() + traffic_->limits.let_go;
  while (is_touched() && Communicator::is_alive()) {
    try {
      traffic_->move_on();
    } catch (const std::exception&) {
      // Of another message, or there is no memory just now; what counts here is what is touched.
    }
    if (Clock::now() > end) {
      traffic_->comm.abandon("a transfer ended early, and other ranks do not take its messages");
    }
    std::this_thread::yield();
  }
}

class MpiExchange final : public Exchange {
 public:
  MpiExchange(MPI_Comm ranks, const Limits& limits)
      : traffic_(std::make_shared<Traffic>(ranks, limits)) {}

  [[nodiscard]] int rank() const override { return traffic_->comm.rank(); }
  [[nodiscard]] int ranks() const override { return traffic_->comm.ranks(); }

  std::unique_ptr<Transfer> start(std::span<const Send> sends,
                                  std::span<const Receive> receives) override {
    distributed::check_messages(sends, receives, *this);
    return begin([&](MpiTransfer& transfer) { transfer.begin(sends, receives); });
  }

  std::unique_ptr<Transfer> start_gather(std::span<const std::byte> own,
                                         std::span<std::byte> all) override {
    distributed::check_gather(own, all, *this);
    return begin([&](MpiTransfer& transfer) { transfer.begin_gather(own, all); });
  }

  void abandon(const std::string& why) override { traffic_->comm.abandon(why); }

 private:
  // The transfer is there before its messages begin, so that it ends them if one cannot.
  template <class Begin>
  std::unique_ptr<Transfer> begin(const Begin& begin_in) {
    auto transfer = std::make_unique<MpiTransfer>(traffic_);
    const std::lock_guard lock(traffic_->mutex);
    traffic_->check_alive();
    begin_in(*transfer);
    return transfer;
  }

  std::shared_ptr<Traffic> traffic_;
};

}  // namespace

std::shared_ptr<Exchange> exchange(MPI_Comm ranks, const Limits& limits) {
  return std::make_shared<MpiExchange>(ranks, limits);
}

}  // namespace treadle::mpi

namespace treadle {

std::shared_ptr<Exchange> mpi_exchange(MPI_Comm ranks) { return mpi::exchange(ranks, {}); }

}  // namespace treadle
