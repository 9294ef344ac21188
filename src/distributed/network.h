// The messages between ranks that are threads of one process. in_process_exchange.cpp makes
// exchanges of it.
//
// For each pair of ranks there is a lane of messages that have been sent and one of receives that
// wait; the first message meets the first receive. The receiver copies, straight from the sender's
// memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "treadle/in_process_exchange.h"

namespace treadle::distributed {

// A message that a rank sends. Its transfer and its lane hold it.
class Outgoing {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Outgoing(std::span<const std::byte> bytes, int to, Time due)
      : bytes_(bytes), to_(to), due_(due) {}

  [[nodiscard]] int to() const { return to_; }
  [[nodiscard]] Time due() const { return due_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // Its memory is the sender's again.
  [[nodiscard]] bool taken() const { return taken_.load(std::memory_order_acquire); }

  // By the receiver: copies the message, if somebody still wants it. Says what is wrong with it, or
  // nothing.
  [[nodiscard]] std::string take(int from, int to, std::span<std::byte> into, bool wanted);

  // By the sender: keeps a copy for the receiver, or nothing if there is no memory for one.
  void give_up() noexcept;

 private:
  std::mutex mutex_;
  std::span<const std::byte> bytes_;
  std::vector<std::byte> copy_;
  const std::size_t size_ = bytes_.size();
  const int to_;
  const Time due_;
  bool lost_ = false;
  std::atomic<bool> taken_ = false;
};

// A receive that waits. Only the thread of its rank touches it.
struct Incoming {
  std::span<std::byte> bytes;
  bool wanted = true;
  bool arrived = false;
  std::string error;
};

class Network {
 public:
  // Messages and gathers are matched apart.
  enum Kind { message, gather };

  Network(int ranks, const InProcessOptions& options);

  [[nodiscard]] int ranks() const { return static_cast<int>(ends_.size()); }

  std::shared_ptr<Outgoing> send(Kind kind, int from, int to, std::span<const std::byte> bytes);
  std::shared_ptr<Incoming> receive(Kind kind, int from, int to, std::span<std::byte> bytes);

  // Delivers some of the messages to a rank that have arrived by now, in any order of senders.
  void deliver(int to);

  // Throws if this rank can go on no more.
  void check(int rank) const;
  // Why nothing will come from this rank or be taken by it, or null.
  [[nodiscard]] const char* gone(int rank) const;

  void silence(int rank) { ends_[index(rank)].silent = true; }
  void kill(int rank) { ends_[index(rank)].state = dead; }
  void leave(int rank);
  void abandon(int rank, const std::string& why);

 private:
  enum State { alive, left, dead };
  // What a rank is, and how its messages come.
  struct End {
    std::atomic<State> state = alive;
    std::atomic<bool> silent = false;
    std::mt19937_64 random;    // its thread's
    std::vector<int> senders;  // all other ranks, in the order of the last delivery
  };
  struct Lane {
    std::mutex mutex;
    std::deque<std::shared_ptr<Outgoing>> sent;     // under the mutex
    std::deque<std::shared_ptr<Incoming>> waiting;  // the receiver's thread's
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  Lane& lane(Kind kind, int from, int to);
  // The first message of a lane that has come all the way, or null.
  std::shared_ptr<Outgoing> next(Lane& lane, int from);
  bool is_on_its_way(Lane& lane, int from);
  void deliver(Kind kind, int from, int to);

  std::chrono::microseconds delay_;
  std::vector<End> ends_;
  std::vector<Lane> lanes_;  // [kind][from][to]
  std::atomic<bool> is_abandoned_ = false;
  mutable std::mutex mutex_;
  std::string abandoned_;  // who and why, under mutex_
};

}  // namespace treadle::distributed
