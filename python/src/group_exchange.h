// An Exchange over a process group of torch's, which treadle/torch/distributed/_group.py hands over.
//
// Messages begin with Python's lock. Threads of Python's wait for them, and say here what has arrived and who is gone;
// so looking at a transfer takes no lock of Python's. What is small is copied, so it can be given up at any time. What is
// large is read and written where it lies: giving it up closes the group, which makes everybody let go of it.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "treadle/exchange.h"

namespace treadle::python {

// The messages of one transfer. Any thread may ask and tell.
class Messages {
 public:
  Messages(std::span<const Exchange::Send> sends, std::span<const Exchange::Receive> receives);

  // Python tells: a receive is there, at an address if it lies in memory of Python's; a send has left.
  void arrived(std::size_t receive, std::uintptr_t address);
  void sent(std::size_t send);
  // Python has let go of one that failed.
  void dropped(bool is_large);

  // As Transfer::test().
  bool test(std::vector<std::size_t>& arrived);
  [[nodiscard]] bool waits_for(int rank) const;
  // Nothing is copied to the caller's memory from now on. Whether Python still uses it.
  bool give_up();
  [[nodiscard]] bool uses_memory() const { return large_.load(std::memory_order_acquire) > 0; }

 private:
  mutable std::mutex mutex_;
  std::vector<Exchange::Receive> receives_;
  std::vector<int> send_ranks_;
  std::vector<bool> is_large_send_, has_arrived_, has_left_;
  std::vector<std::size_t> new_;
  std::atomic<std::size_t> left_, large_{0};  // not done; those of them in the caller's memory
  std::atomic<bool> news_{false};
  bool given_up_ = false;
};

class GroupExchange final : public Exchange {
 public:
  // `port` has receive(tensors, rank, tag) and send(tensors, rank, tag), functions of the group's; empty(size) and
  // tensor_of(memory); what waits for what they begin: received[rank], sent and kept; tell(text) and close().
  GroupExchange(int rank, int ranks, nanobind::object port);
  ~GroupExchange() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  std::unique_ptr<Transfer> start(std::span<const Send> sends,
                                  std::span<const Receive> receives) override;
  std::unique_ptr<Transfer> start_gather(std::span<const std::byte> own,
                                         std::span<std::byte> all) override;
  void abandon(const std::string& why) override;

  // Python tells: a rank cannot be reached any more, and another's last words.
  void gone(int rank, const std::string& why);
  void told(const std::string& why);

  // A call begins: who waits for others looks at this, too. A quick one is made by this thread, which looks for signals
  // while it waits, if it is Python's main thread.
  void begin_call(std::stop_token stop, bool is_quick);
  // It has ended: what a handler of a signal has raised meanwhile.
  std::optional<nanobind::python_error> end_call();

  // Throws if these messages will not come.
  void check(const Messages& messages);
  void close();

 private:
  std::unique_ptr<Transfer> begin(std::span<const Send> sends, std::span<const Receive> receives,
                                  bool is_gather);
  void begin_receive(const Receive& receive, std::size_t number, bool is_gather,
                     const std::shared_ptr<Messages>& messages);
  void begin_send(const Send& send, std::size_t number, bool is_gather,
                  const std::shared_ptr<Messages>& messages);
  void tell(const std::string& why);
  [[noreturn]] void stop_waiting();
  void look_for_signals();

  using Clock = std::chrono::steady_clock;
  struct Trouble {
    int rank = -1;  // who is gone; -1: who is told of
    std::string why;
    Clock::time_point since;
  };

  const int rank_, ranks_;
  nanobind::object port_, receive_, send_, empty_, tensor_of_, received_, sent_, kept_;
  std::mutex mutex_;
  std::atomic<bool> in_trouble_{false};
  std::optional<Trouble> trouble_;  // the first, but words go before silence
  std::stop_token stop_;
  std::optional<Clock::time_point> stopped_;
  std::thread::id looks_;  // this thread, for signals; none: somebody else does
  Clock::time_point looked_;
  std::optional<nanobind::python_error> raised_;
};

}  // namespace treadle::python
