// Waits that look at the clock. Read Mail::wait() first.
#include "distributed/channel.h"

#include <algorithm>
#include <new>
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

std::string text_of_current() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

Channel::Channel(std::shared_ptr<Exchange> exchange, std::chrono::milliseconds patience)
    : exchange_(std::move(exchange)),
      rank_(exchange_->rank()),
      ranks_(exchange_->ranks()),
      // What clocks can count to.
      patience_(std::min<std::chrono::milliseconds>(patience, std::chrono::hours(100'000))) {}

void Channel::check(std::string_view call) const {
  if (lost())
    base::fail(
        "{}: the ranks have lost one another; new exchanges and plans are needed. It began with: "
        "{}",
        call, why_lost_);
}

class Channel::OneTransfer {
 public:
  template <class Start>
  OneTransfer(Channel& channel, const Start& start) : channel_(channel) {
    const std::lock_guard lock(channel_.mutex_);
    transfer_ = channel_.use(start);
  }
  ~OneTransfer() { end(); }
  OneTransfer(const OneTransfer&) = delete;
  OneTransfer& operator=(const OneTransfer&) = delete;

  bool test(std::vector<std::size_t>& arrived) {
    const std::lock_guard lock(channel_.mutex_);
    return channel_.use([&] { return transfer_->test(arrived); });
  }
  void end() {
    const std::lock_guard lock(channel_.mutex_);
    transfer_.reset();
  }

 private:
  Channel& channel_;
  std::unique_ptr<Transfer> transfer_;
};

void Channel::gather(std::span<const std::byte> own, std::span<std::byte> all,
                     std::string_view call) {
  check(call);
  if (ranks_ == 1) {
    std::ranges::copy(own, all.begin());
    return;
  }
  const Clock::time_point end = Clock::now() + patience_;
  {
    std::vector<std::size_t> none;
    OneTransfer gather(*this, [&] { return exchange_->start_gather(own, all); });
    for (Pause pause; !gather.test(none); pause()) {
      if (Clock::now() <= end) continue;
      gather.end();
      give_up({}, call);
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

void Channel::lose(const std::string& why) {
  if (lost()) return;
  why_lost_ = why;
  lost_.store(true, std::memory_order_release);
}

void Channel::give_up(std::vector<int> silent, std::string_view call) {
  const std::lock_guard one(giving_up_);
  if (lost()) base::fail("{}", why_lost_);
  if (silent.empty()) silent = find_silent();
  const std::string who = silent.empty() ? "some rank" : names_of(silent);
  const std::string why = fmt::format(
      "{}: rank {} waited {} s for {}, which did not take part; all ranks make the same "
      "calls in the same order, and PlanOptions::patience is how long one may be late",
      call, rank_, static_cast<double>(patience_.count()) / 1000, who);
  const std::lock_guard lock(mutex_);
  lose(why);
  abandon(why);
  base::fail("{}", why);
}

void Channel::abandon(const std::string& why) {
  if (abandoned_) return;
  abandoned_ = true;
  exchange_->abandon(why);
}

void Channel::part(std::string_view call) noexcept {
  if (agreed_.load(std::memory_order_relaxed) || ranks_ == 1) return;
  try {
    const std::string text =
        lost() ? why_lost_
               : fmt::format("{}: rank {} left the call: {}", call, rank_, text_of_current());
    const std::lock_guard lock(mutex_);
    lose(text);
    abandon(text);
  } catch (const std::exception&) {
    // There is no memory for words.
    lost_.store(true, std::memory_order_release);
  }
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

Mail::~Mail() {
  const std::lock_guard lock(channel_.mutex_);
  hearing_.reset();
  transfer_.reset();
}

void Mail::start() {
  channel_.check(call_);
  const std::lock_guard lock(channel_.mutex_);
  // Others rely on it: whoever cannot is lost.
  channel_.use([&] {
    arrived_ = std::make_unique<std::atomic<bool>[]>(receives.size());
    new_.reserve(receives.size());
    begin();
  });
}

void Mail::start_after(std::span<const std::byte> own, std::span<std::byte> all,
                       std::function<void()> listen) {
  channel_.check(call_);
  arrived_ = std::make_unique<std::atomic<bool>[]>(receives.size());
  new_.reserve(receives.size());
  listen_ = std::move(listen);
  const std::lock_guard lock(channel_.mutex_);
  if (channel_.ranks_ == 1) {
    std::ranges::copy(own, all.begin());
    hear();
  } else {
    hearing_ = channel_.use([&] { return channel_.exchange_->start_gather(own, all); });
  }
}

void Mail::hear() {
  try {
    listen_();
  } catch (...) {
    why_refused_ = std::current_exception();
    refused_.store(true, std::memory_order_release);
    done_.store(true, std::memory_order_release);
    return;
  }
  // The others begin, too, and rely on it.
  channel_.use([&] { begin(); });
}

void Mail::begin() {
  receive_of_.clear();  // of a try that found no memory
  std::vector<Exchange::Send> out;
  std::vector<Exchange::Receive> in;
  for (const Message& message : sends)
    if (message.bytes.size() > 0) out.push_back({message.rank, message.bytes.bytes()});
  for (std::size_t i = 0; i < receives.size(); ++i) {
    if (receives[i].bytes.size() == 0) {
      arrived_[i].store(true, std::memory_order_release);
      continue;
    }
    in.push_back({receives[i].rank, receives[i].bytes.bytes()});
    receive_of_.push_back(i);
  }
  if (out.empty() && in.empty()) {
    done_.store(true, std::memory_order_release);
    return;
  }
  transfer_ = channel_.use([&] { return channel_.exchange_->start(out, in); });
}

void Mail::test() {
  if (done_.load(std::memory_order_relaxed)) return;
  new_.clear();
  if (hearing_ != nullptr) {
    if (!channel_.use([&] { return hearing_->test(new_); })) return;
    hearing_.reset();
    hear();
    return;
  }
  const bool done = channel_.use([&] { return transfer_->test(new_); });
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
    bool hears = false;
    {
      const std::lock_guard lock(channel_.mutex_);
      channel_.check(call_);
      test();
      hears = hearing_ != nullptr;
    }
    if (done() || refused() || Clock::now() <= end) {
      if (refused()) break;
      continue;
    }
    std::vector<int> silent;
    if (!hears) {
      for (std::size_t i = 0; i < receives.size(); ++i)
        if (!has(i)) silent.push_back(receives[i].rank);
      if (silent.empty())
        for (const Message& message : sends)
          if (message.bytes.size() > 0) silent.push_back(message.rank);
    }
    channel_.give_up(std::move(silent), call_);
  }
  if (refused()) std::rethrow_exception(why_refused_);
}

void Mail::await(std::size_t receive) {
  poll();
  wait([&] { return has(receive); });
}

void Mail::finish() {
  wait([&] { return done_.load(std::memory_order_acquire); });
}

}  // namespace treadle::distributed
