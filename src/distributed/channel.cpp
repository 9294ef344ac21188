// Waits that look at the clock. Read Mail::wait() first.
#include "distributed/channel.h"

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace treadle::distributed {
namespace {

// Between two looks at a transfer: short at first, since most messages are on their way already.
class Pause {
 public:
  void operator()() {
    if (++looks_ < 64) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(looks_ < 256 ? 20 : 200));
  }

 private:
  int looks_ = 0;
};

std::string names_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > 8) text += ", ...";
  return text;
}

}  // namespace

Channel::Channel(std::shared_ptr<Exchange> exchange, std::chrono::milliseconds patience)
    : exchange_(std::move(exchange)),
      rank_(exchange_->rank()),
      ranks_(exchange_->ranks()),
      patience_(patience) {}

void Channel::gather(std::span<const std::byte> own, std::span<std::byte> all,
                     std::string_view call) {
  if (ranks_ == 1) {
    std::ranges::copy(own, all.begin());
    return;
  }
  std::unique_ptr<Transfer> transfer;
  std::vector<std::size_t> none;
  const Clock::time_point end = Clock::now() + patience_;
  {
    const std::lock_guard lock(mutex_);
    transfer = exchange_->start_gather(own, all);
  }
  for (Pause pause;; pause()) {
    {
      const std::lock_guard lock(mutex_);
      if (transfer->test(none)) return;
    }
    if (Clock::now() > end) {
      transfer.reset();
      give_up(find_silent(), call);
    }
  }
}

// Who does not answer within half a second. All others wait for the same ranks, so they ask, too.
std::vector<int> Channel::find_silent() {
  std::vector<std::byte> asked(static_cast<std::size_t>(ranks_)),
      answers(static_cast<std::size_t>(ranks_));
  std::vector<Exchange::Send> sends;
  std::vector<Exchange::Receive> receives;
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    sends.push_back({r, {&asked[static_cast<std::size_t>(r)], 1}});
    receives.push_back({r, {&answers[static_cast<std::size_t>(r)], 1}});
  }
  std::vector<bool> answered(receives.size());
  std::vector<std::size_t> arrived;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(500);
  try {
    const std::lock_guard lock(mutex_);
    const auto transfer = exchange_->start(sends, receives);
    while (!transfer->test(arrived) && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } catch (const std::exception&) {
    // Whoever did not answer so far is named.
  }
  for (const std::size_t i : arrived) answered[i] = true;
  std::vector<int> silent;
  for (std::size_t i = 0; i < receives.size(); ++i)
    if (!answered[i]) silent.push_back(receives[i].rank);
  return silent;
}

void Channel::give_up(const std::vector<int>& silent, std::string_view call) {
  const std::string who = silent.empty() ? "some rank" : names_of(silent);
  const std::string why = fmt::format(
      "{}: {} waited {} s for {}, which did not take part; all ranks make the same "
      "calls in the same order, and PlanOptions::patience is how long one may be late",
      call, fmt::format("rank {}", rank_), static_cast<double>(patience_.count()) / 1000, who);
  abandon(why);
  base::fail("{}", why);
}

void Channel::abandon(const std::string& why) {
  const std::lock_guard lock(mutex_);
  exchange_->abandon(why);
}

std::vector<std::vector<std::byte>> Channel::swap(const std::vector<std::vector<std::byte>>& to,
                                                  std::string_view call) {
  const auto count = static_cast<std::size_t>(ranks_);
  // Row r of the table: how long rank r's lists are.
  std::vector<std::int64_t> lengths(count), table(count * count);
  for (std::size_t r = 0; r < count; ++r) lengths[r] = std::ssize(to[r]);
  gather(std::as_bytes(std::span(lengths)), std::as_writable_bytes(std::span(table)), call);
  Mail mail(*this, call);
  std::vector<std::vector<std::byte>> from(count);
  const auto own = static_cast<std::size_t>(rank_);
  for (std::size_t r = 0; r < count; ++r) {
    if (r == own) continue;
    Buffer bytes(lengths[r]);
    std::ranges::copy(to[r], bytes.data());
    mail.sends.push_back({static_cast<int>(r), std::move(bytes)});
    mail.receives.push_back({static_cast<int>(r), Buffer(table[r * count + own])});
  }
  mail.start();
  mail.finish();
  for (const Mail::Message& message : mail.receives) {
    const std::span<std::byte> bytes = message.bytes.bytes();
    from[static_cast<std::size_t>(message.rank)].assign(bytes.begin(), bytes.end());
  }
  from[own] = to[own];
  return from;
}

std::vector<std::vector<std::byte>> Channel::share(const std::vector<std::byte>& own,
                                                   std::string_view call) {
  return swap(std::vector<std::vector<std::byte>>(static_cast<std::size_t>(ranks_), own), call);
}

void Mail::start() {
  arrived_ = std::make_unique<std::atomic<bool>[]>(receives.size());
  std::vector<Exchange::Send> out;
  std::vector<Exchange::Receive> in;
  for (const Message& message : sends)
    if (message.bytes.size() > 0) out.push_back({message.rank, message.bytes.bytes()});
  for (std::size_t i = 0; i < receives.size(); ++i) {
    if (receives[i].bytes.size() == 0) {
      arrived_[i] = true;
      continue;
    }
    in.push_back({receives[i].rank, receives[i].bytes.bytes()});
    receive_of_.push_back(i);
  }
  new_.reserve(in.size());
  const std::lock_guard lock(channel_.mutex_);
  if (out.empty() && in.empty()) {
    done_ = true;
    return;
  }
  transfer_ = channel_.exchange_->start(out, in);
}

void Mail::test() {
  if (done_.load(std::memory_order_relaxed)) return;
  new_.clear();
  const bool done = transfer_->test(new_);
  for (const std::size_t i : new_) arrived_[receive_of_[i]].store(true, std::memory_order_release);
  if (done) {
    transfer_.reset();
    done_.store(true, std::memory_order_release);
  }
}

void Mail::poll() {
  if (done_.load(std::memory_order_acquire)) return;
  const std::unique_lock lock(channel_.mutex_, std::try_to_lock);
  if (lock.owns_lock()) test();
}

template <class Done>
void Mail::wait(const Done& done) {
  const Clock::time_point end = Clock::now() + channel_.patience_;
  for (Pause pause; !done(); pause()) {
    {
      const std::lock_guard lock(channel_.mutex_);
      test();
    }
    if (done() || Clock::now() <= end) continue;
    std::vector<int> silent;
    for (std::size_t i = 0; i < receives.size(); ++i)
      if (!has(i)) silent.push_back(receives[i].rank);
    if (silent.empty())
      for (const Message& message : sends)
        if (message.bytes.size() > 0) silent.push_back(message.rank);
    channel_.give_up(silent, call_);
  }
}

void Mail::await(std::size_t receive) {
  poll();
  wait([&] { return has(receive); });
}

void Mail::finish() {
  wait([&] { return done_.load(std::memory_order_acquire); });
}

}  // namespace treadle::distributed
