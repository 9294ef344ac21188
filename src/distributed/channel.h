// A Channel: an exchange between ranks whose waits end.
//
//   std::vector<Greeting> all = channel.gather(mine, "plan");      // one from each rank
//   Mail mail(channel, "forward", sends, receives);                // messages on their way
//   mail.start();
//   mail.await(0);                                              // until the first receive is there
//   mail.finish();
//
// Whoever waits looks at the clock: when a rank has been silent for longer than `patience`, the wait throws an
// error that names it, and the other ranks are ended if the transport can. After that, and after any failure of the
// transport, the channel is lost: ranks no longer know what the others do.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "distributed/buffer.h"
#include "treadle/exchange.h"

namespace treadle::distributed {

using Clock = std::chrono::steady_clock;

// What the current exception says, in words for a user.
std::string text_of_current();

class Channel {
 public:
  Channel(std::shared_ptr<Exchange> exchange, std::chrono::milliseconds patience);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }

  // The same number of bytes of every rank, in their order. `call` is its name, in messages.
  template <class T>
    requires(std::is_trivially_copyable_v<T>)
  std::vector<T> gather(const T& own, std::string_view call) {
    std::vector<T> all(static_cast<std::size_t>(ranks_));
    gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)), call);
    return all;
  }
  void gather(std::span<const std::byte> own, std::span<std::byte> all, std::string_view call);

  // Lists of any length: to each rank one, which may be empty; returns those that were sent here.
  std::vector<std::vector<std::byte>> swap(const std::vector<std::vector<std::byte>>& to,
                                           std::string_view call);
  // The same list to all.
  std::vector<std::vector<std::byte>> share(const std::vector<std::byte>& own,
                                            std::string_view call);

  // A call of all ranks. What is thrown in it, unless all throw it (agreed()), parts this rank from the others: the
  // channel is lost, and they are told.
  template <class F>
  void keep_together(std::string_view call, const F& f) {
    check(call);
    agreed_.store(false, std::memory_order_relaxed);
    try {
      f();
    } catch (...) {
      part(call);
      throw;
    }
  }
  // All ranks are about to throw the same.
  void agreed() { agreed_.store(true, std::memory_order_relaxed); }

  // Whether ranks cannot agree on anything any more.
  [[nodiscard]] bool lost() const { return lost_.load(std::memory_order_acquire); }
  // Throws if it is.
  void check(std::string_view call) const;

 private:
  friend class Mail;

  // What the exchange does; if it throws, the channel is lost. It is locked.
  template <class F>
  auto use(const F& f) {
    try {
      return f();
    } catch (...) {
      lose(text_of_current());
      throw;
    }
  }
  void lose(const std::string& why);
  void part(std::string_view call) noexcept;
  void abandon(const std::string& why);
  // It moves messages on until it ends, and ends under the mutex, too.
  class OneTransfer;
  // Nobody of these has been heard of; whoever does not answer now, if there are none.
  [[noreturn]] void give_up(std::vector<int> silent, std::string_view call);
  [[nodiscard]] std::vector<int> find_silent();

  std::shared_ptr<Exchange> exchange_;
  int rank_, ranks_;
  std::chrono::milliseconds patience_;
  std::mutex mutex_;  // an exchange is used by one thread at a time
  std::mutex giving_up_;
  std::atomic<bool> lost_{false}, agreed_{false};
  bool abandoned_ = false;  // under the mutex
  std::string why_lost_;    // before lost_ is set
};

// Messages of a call. After start() any thread may ask.
class Mail {
 public:
  struct Message {
    int rank = 0;
    Buffer bytes;
  };

  // Messages without bytes are not sent.
  Mail(Channel& channel, std::string_view call) : channel_(channel), call_(call) {}
  ~Mail();
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  std::vector<Message> sends, receives;

  // The messages stay as they are from here on.
  void start();
  // The same once all ranks have said something, equally many bytes, and `listen`, which may throw, has heard it:
  // then no message leaves, and whoever waits gets what it threw. Meanwhile there is time for work.
  void start_after(std::span<const std::byte> own, std::span<std::byte> all,
                   std::function<void()> listen);
  // Whether `listen` threw. Rethrows nothing.
  [[nodiscard]] bool refused() const { return refused_.load(std::memory_order_acquire); }
  // Moves messages on, if nobody else does.
  void poll();
  [[nodiscard]] bool has(std::size_t receive) const {
    return arrived_[receive].load(std::memory_order_acquire);
  }
  // Returns when the receive is there, or throws.
  void await(std::size_t receive);
  // When all messages, sent and received, are done.
  void finish();
  // Then their memory may be used again.
  void release(std::vector<Buffer>& to) {
    for (std::vector<Message>* messages : {&sends, &receives})
      for (Message& message : *messages) to.push_back(std::move(message.bytes));
  }

 private:
  void test();   // the channel is locked
  void hear();   // so it is here
  void begin();  // and here
  template <class Done>
  void wait(const Done& done);

  Channel& channel_;
  std::string_view call_;
  std::vector<std::size_t> receive_of_, sent_;  // numbers of those that have bytes
  std::vector<std::size_t> new_;
  std::unique_ptr<std::atomic<bool>[]> arrived_;
  std::unique_ptr<Transfer> hearing_, transfer_;
  std::function<void()> listen_;
  std::exception_ptr why_refused_;
  std::atomic<bool> refused_{false}, done_{false};
};

}  // namespace treadle::distributed
