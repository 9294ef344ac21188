// Exchanges between threads; the messages are in network.cpp.
#include "treadle/in_process_exchange.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "distributed/exchange_checks.h"
#include "distributed/network.h"

namespace treadle {
namespace {

using distributed::Incoming;
using distributed::Network;
using distributed::Outgoing;

class InProcessTransfer final : public Transfer {
 public:
  InProcessTransfer(std::shared_ptr<Network> network, int rank)
      : network_(std::move(network)), rank_(rank) {}

  // Each message still meets its own receive, so that those of later transfers do, too.
  ~InProcessTransfer() override {
    for (const std::shared_ptr<Outgoing>& send : sends_) send->give_up();
    for (const std::shared_ptr<Incoming>& receive : receives_) receive->wanted = false;
  }

  void begin(Network::Kind kind, std::span<const Exchange::Send> sends,
             std::span<const Exchange::Receive> receives) {
    kind_ = kind;
    sends_.reserve(sends.size());
    receives_.reserve(receives.size());
    reported_.resize(receives.size());
    for (const Exchange::Receive& receive : receives) {
      receives_.push_back(network_->receive(kind, receive.rank, rank_, receive.bytes));
    }
    for (const Exchange::Send& send : sends) {
      sends_.push_back(network_->send(kind, rank_, send.rank, send.bytes));
    }
  }

  bool test(std::vector<std::size_t>& arrived) override {
    network_->check(rank_);
    network_->deliver(rank_);
    check();
    for (std::size_t i = 0; i < receives_.size(); ++i) {
      if (!receives_[i]->arrived || reported_[i]) continue;
      if (kind_ == Network::message) arrived.push_back(i);
      reported_[i] = true;
    }
    const auto is_done = [](const auto& message) { return is_over(*message); };
    return std::ranges::all_of(receives_, is_done) && std::ranges::all_of(sends_, is_done);
  }

 private:
  static bool is_over(const Outgoing& send) { return send.taken(); }
  static bool is_over(const Incoming& receive) { return receive.arrived; }

  void check() const {
    for (const std::shared_ptr<Incoming>& receive : receives_) {
      if (!receive->error.empty()) base::fail("{}", receive->error);
    }
    for (const std::shared_ptr<Outgoing>& send : sends_) {
      // Asked first: what it takes before it is gone counts.
      const char* gone = network_->gone(send->to());
      if (gone != nullptr && !send->taken()) {
        base::fail("exchange: rank {} sends {} bytes to rank {}, which {}", rank_, send->size(),
                   send->to(), gone);
      }
    }
  }

  std::shared_ptr<Network> network_;
  const int rank_;
  Network::Kind kind_ = Network::message;
  std::vector<std::shared_ptr<Outgoing>> sends_;
  std::vector<std::shared_ptr<Incoming>> receives_;
  std::vector<bool> reported_;
};

class InProcessExchange final : public Exchange {
 public:
  InProcessExchange(std::shared_ptr<Network> network, int rank)
      : network_(std::move(network)), rank_(rank) {}
  ~InProcessExchange() override { network_->leave(rank_); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return network_->ranks(); }

  std::unique_ptr<Transfer> start(std::span<const Send> sends,
                                  std::span<const Receive> receives) override {
    distributed::check_messages(sends, receives, *this);
    return begin(Network::message, sends, receives);
  }

  std::unique_ptr<Transfer> start_gather(std::span<const std::byte> own,
                                         std::span<std::byte> all) override {
    distributed::check_gather(own, all, *this);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (int other = 0; other < ranks(); ++other) {
      const std::span<std::byte> part =
          all.subspan(static_cast<std::size_t>(other) * own.size(), own.size());
      if (other == rank_) {
        std::ranges::copy(own, part.begin());
      } else {
        sends.push_back({other, own});
        receives.push_back({other, part});
      }
    }
    return begin(Network::gather, sends, receives);
  }

  void abandon(const std::string& why) override { network_->abandon(rank_, why); }

  void silence() { network_->silence(rank_); }
  void kill() { network_->kill(rank_); }

 private:
  std::unique_ptr<Transfer> begin(Network::Kind kind, std::span<const Send> sends,
                                  std::span<const Receive> receives) {
    network_->check(rank_);
    auto transfer = std::make_unique<InProcessTransfer>(network_, rank_);
    transfer->begin(kind, sends, receives);
    return transfer;
  }

  std::shared_ptr<Network> network_;
  const int rank_;
};

InProcessExchange& in_process(Exchange& rank) {
  auto* exchange = dynamic_cast<InProcessExchange*>(&rank);
  if (exchange == nullptr) base::fail("exchange: rank {} is not a thread", rank.rank());
  return *exchange;
}

}  // namespace

std::vector<std::shared_ptr<Exchange>> in_process_exchanges(int ranks,
                                                            const InProcessOptions& options) {
  if (ranks < 1) base::fail("in_process_exchanges: {} ranks; there must be at least 1", ranks);
  const auto network = std::make_shared<Network>(ranks, options);
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (int rank = 0; rank < ranks; ++rank) {
    exchanges.push_back(std::make_shared<InProcessExchange>(network, rank));
  }
  return exchanges;
}

void silence_rank(Exchange& rank) { in_process(rank).silence(); }
void kill_rank(Exchange& rank) { in_process(rank).kill(); }

}  // namespace treadle
