// Lanes of messages, and who is alive.
#include "distributed/network.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "distributed/exchange_checks.h"

namespace treadle::distributed {

std::string Outgoing::take(int from, int to, std::span<std::byte> into, bool wanted) {
  const std::lock_guard lock(mutex_);
  std::string error;
  if (!wanted) {
    // The receive was given up, but it is this message's.
  } else if (lost_) {
    error = fmt::format("exchange: rank {} has given up a message of {} bytes to rank {}", from,
                        size_, to);
  } else if (size_ != into.size()) {
    error = wrong_size(to, size_, from, into.size());
  } else if (size_ > 0) {
    std::memcpy(into.data(), bytes_.data(), size_);
  }
  taken_.store(true, std::memory_order_release);
  return error;
}

void Outgoing::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  if (taken_) return;
  try {
    copy_.assign(bytes_.begin(), bytes_.end());
  } catch (const std::bad_alloc&) {
    lost_ = true;
  }
  bytes_ = copy_;
}

Network::Network(int ranks, const InProcessOptions& options)
    : delay_(options.delay), ends_(index(ranks)), lanes_(2 * index(ranks) * index(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) {
    End& end = ends_[index(rank)];
    std::seed_seq seed{options.seed, options.seed >> 32, static_cast<std::uint64_t>(rank)};
    end.random.seed(seed);
    for (int other = 0; other < ranks; ++other) {
      if (other != rank) end.senders.push_back(other);
    }
  }
}

Network::Lane& Network::lane(Kind kind, int from, int to) {
  return lanes_[(index(kind) * ends_.size() + index(from)) * ends_.size() + index(to)];
}

std::shared_ptr<Outgoing> Network::send(Kind kind, int from, int to,
                                        std::span<const std::byte> bytes) {
  auto message = std::make_shared<Outgoing>(bytes, to, std::chrono::steady_clock::now() + delay_);
  Lane& there = lane(kind, from, to);
  const std::lock_guard lock(there.mutex);
  there.sent.push_back(message);
  return message;
}

std::shared_ptr<Incoming> Network::receive(Kind kind, int from, int to,
                                           std::span<std::byte> bytes) {
  auto receive = std::make_shared<Incoming>();
  receive->bytes = bytes;
  lane(kind, from, to).waiting.push_back(receive);
  return receive;
}

void Network::deliver(int to) {
  End& end = ends_[index(to)];
  std::shuffle(end.senders.begin(), end.senders.end(), end.random);
  for (const int from : end.senders) {
    deliver(message, from, to);
    deliver(gather, from, to);
  }
}

void Network::deliver(Kind kind, int from, int to) {
  Lane& there = lane(kind, from, to);
  // Asked before the lane is looked at: what is not in it then will never be.
  const char* gone_from = gone(from);
  while (!there.waiting.empty()) {
    // Half of what could arrive waits for another time, behind messages of others.
    if (ends_[index(to)].random() % 2 == 0) return;
    const std::shared_ptr<Outgoing> message = next(there, from);
    Incoming& receive = *there.waiting.front();
    if (message != nullptr) {
      receive.error = message->take(from, to, receive.bytes, receive.wanted);
    } else if (gone_from != nullptr && !is_on_its_way(there, from)) {
      receive.error = fmt::format("exchange: rank {} waits for {} bytes from rank {}, which {}", to,
                                  receive.bytes.size(), from, gone_from);
    } else {
      return;
    }
    receive.arrived = true;
    there.waiting.pop_front();
  }
}

bool Network::is_on_its_way(Lane& lane, int from) {
  const std::lock_guard lock(lane.mutex);
  return !ends_[index(from)].silent && !lane.sent.empty();
}

std::shared_ptr<Outgoing> Network::next(Lane& lane, int from) {
  const std::lock_guard lock(lane.mutex);
  if (ends_[index(from)].silent || lane.sent.empty()) return nullptr;
  if (lane.sent.front()->due() > std::chrono::steady_clock::now()) return nullptr;
  std::shared_ptr<Outgoing> message = std::move(lane.sent.front());
  lane.sent.pop_front();
  return message;
}

const char* Network::gone(int rank) const {
  switch (ends_[index(rank)].state) {
    case alive: return nullptr;
    case left: return "has left";
    case dead: return "is dead";
  }
  return nullptr;
}

void Network::check(int rank) const {
  if (is_abandoned_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex_);
    base::fail("{}", abandoned_);
  }
  if (const char* gone_self = gone(rank)) base::fail("exchange: rank {} {}", rank, gone_self);
}

void Network::leave(int rank) {
  State expected = alive;
  ends_[index(rank)].state.compare_exchange_strong(expected, left);
}

void Network::abandon(int rank, const std::string& why) {
  // Nobody hears a rank that is dead or silent.
  if (ends_[index(rank)].state == dead || ends_[index(rank)].silent) return;
  const std::lock_guard lock(mutex_);
  if (is_abandoned_) return;  // the first reason is the one to tell
  abandoned_ = fmt::format("exchange: rank {} has given up: {}", rank, why);
  is_abandoned_.store(true, std::memory_order_release);
}

}  // namespace treadle::distributed
