// Messages that Python moves. Read GroupExchange::begin() first.
#include "group_exchange.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "treadle/error.h"

namespace nb = nanobind;

namespace treadle::python {
namespace {

constexpr std::size_t most_copied = std::size_t{1} << 16;
// A rank that is gone is named by all who see it go; whoever has seen more says so before it goes itself.
constexpr auto time_for_words = std::chrono::milliseconds(200);
// A rank may go when it has all it waits for. Whoever does not wait for it gives others this time.
constexpr auto time_for_others = std::chrono::seconds(1);
constexpr auto time_to_stop = std::chrono::seconds(1);
constexpr auto between_looks = std::chrono::milliseconds(50);
constexpr auto time_to_let_go = std::chrono::seconds(60);

nb::object memory_of(const std::byte* data, std::size_t size, int flags) {
  auto* address = reinterpret_cast<char*>(const_cast<std::byte*>(data));
  return nb::steal(PyMemoryView_FromMemory(address, static_cast<Py_ssize_t>(size), flags));
}

nb::object copy_of(std::span<const std::byte> bytes) {
  return nb::steal(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                                 static_cast<Py_ssize_t>(bytes.size())));
}

// Calls Python. What it raises becomes an Error with its words.
template <class F>
void with_python(const F& f) {
  const nb::gil_scoped_acquire lock;
  std::string why;
  try {
    f();
    return;
  } catch (nb::python_error& error) {
    why = nb::str(error.value()).c_str();
    if (why.empty()) why = nb::str(error.type()).c_str();
  }
  throw Error("exchange: " + why);
}

}  // namespace

Messages::Messages(std::span<const Exchange::Send> sends,
                   std::span<const Exchange::Receive> receives)
    : receives_(receives.begin(), receives.end()),
      has_arrived_(receives.size()),
      has_left_(sends.size()),
      left_(sends.size() + receives.size()) {
  for (const Exchange::Send& send : sends) {
    send_ranks_.push_back(send.rank);
    is_large_send_.push_back(send.bytes.size() > most_copied);
    if (is_large_send_.back()) ++large_;
  }
  for (const Exchange::Receive& receive : receives)
    if (receive.bytes.size() > most_copied) ++large_;
  new_.reserve(receives.size());
}

nb::list Messages::sends_for_python(std::span<const Exchange::Send> sends) const {
  nb::list list;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const std::span<const std::byte> bytes = sends[i].bytes;
    const bool is_large = bytes.size() > most_copied;
    list.append(nb::make_tuple(
        i, sends[i].rank,
        is_large ? memory_of(bytes.data(), bytes.size(), PyBUF_WRITE) : copy_of(bytes), is_large));
  }
  return list;
}

nb::list Messages::receives_for_python() const {
  nb::list list;
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    const std::span<std::byte> bytes = receives_[i].bytes;
    list.append(nb::make_tuple(i, receives_[i].rank, bytes.size(),
                               bytes.size() > most_copied
                                   ? memory_of(bytes.data(), bytes.size(), PyBUF_WRITE)
                                   : nb::none()));
  }
  return list;
}

void Messages::arrived(std::size_t receive, std::uintptr_t address) {
  {
    const std::lock_guard lock(mutex_);
    const std::span<std::byte> to = receives_[receive].bytes;
    if (!given_up_ && address != 0)
      std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    has_arrived_[receive] = true;
    new_.push_back(receive);
    if (address == 0) --large_;
  }
  news_.store(true, std::memory_order_release);
  left_.fetch_sub(1, std::memory_order_release);
}

void Messages::sent(std::size_t send) {
  {
    const std::lock_guard lock(mutex_);
    has_left_[send] = true;
    if (is_large_send_[send]) --large_;
  }
  left_.fetch_sub(1, std::memory_order_release);
}

void Messages::dropped(bool is_large) {
  if (is_large) --large_;
}

bool Messages::test(std::vector<std::size_t>& arrived) {
  const bool done = left_.load(std::memory_order_acquire) == 0;
  if (news_.exchange(false, std::memory_order_acq_rel)) {
    const std::lock_guard lock(mutex_);
    arrived.insert(arrived.end(), new_.begin(), new_.end());
    new_.clear();
  }
  return done;
}

bool Messages::waits_for(int rank) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < receives_.size(); ++i)
    if (!has_arrived_[i] && receives_[i].rank == rank) return true;
  for (std::size_t i = 0; i < send_ranks_.size(); ++i)
    if (!has_left_[i] && send_ranks_[i] == rank) return true;
  return false;
}

bool Messages::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  return uses_memory();
}

namespace {

class GroupTransfer final : public Transfer {
 public:
  GroupTransfer(GroupExchange& exchange, std::shared_ptr<Messages> messages, bool is_gather)
      : exchange_(exchange), messages_(std::move(messages)), is_gather_(is_gather) {}

  ~GroupTransfer() override {
    if (!messages_->give_up()) return;
    exchange_.close();
    const auto end = std::chrono::steady_clock::now() + time_to_let_go;
    while (messages_->uses_memory()) {
      if (std::chrono::steady_clock::now() > end) {
        std::fputs("treadle: messages of a process group use memory that must be freed\n", stderr);
        std::abort();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  bool test(std::vector<std::size_t>& arrived) override {
    new_.clear();
    const bool done = messages_->test(is_gather_ ? new_ : arrived);
    if (!done) exchange_.check(*messages_);
    return done;
  }

 private:
  GroupExchange& exchange_;
  std::shared_ptr<Messages> messages_;
  const bool is_gather_;
  std::vector<std::size_t> new_;
};

}  // namespace

GroupExchange::~GroupExchange() {
  const nb::gil_scoped_acquire lock;
  port_.reset();
}

std::unique_ptr<Transfer> GroupExchange::begin(std::span<const Send> sends,
                                               std::span<const Receive> receives, bool is_gather) {
  auto messages = std::make_shared<Messages>(sends, receives);
  auto transfer = std::make_unique<GroupTransfer>(*this, messages, is_gather);
  with_python([&] {
    port_.attr("start")(messages->sends_for_python(sends), messages->receives_for_python(),
                        is_gather, messages);
  });
  return transfer;
}

std::unique_ptr<Transfer> GroupExchange::start(std::span<const Send> sends,
                                               std::span<const Receive> receives) {
  return begin(sends, receives, false);
}

// Every rank sends its own to all others: so it sees for itself who is gone, and waits for nobody in between.
std::unique_ptr<Transfer> GroupExchange::start_gather(std::span<const std::byte> own,
                                                      std::span<std::byte> all) {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int other = 0; other < ranks_; ++other) {
    const std::span<std::byte> part =
        all.subspan(static_cast<std::size_t>(other) * own.size(), own.size());
    if (other == rank_) {
      std::ranges::copy(own, part.begin());
    } else if (!own.empty()) {
      sends.push_back({other, own});
      receives.push_back({other, part});
    }
  }
  return begin(sends, receives, true);
}

void GroupExchange::tell(const std::string& why) {
  with_python([&] { port_.attr("tell")(why); });
}

void GroupExchange::close() {
  with_python([&] { port_.attr("close")(); });
}

void GroupExchange::abandon(const std::string& why) {
  try {
    tell(why);
    close();
  } catch (const Error&) {
    // Nobody is left to be told.
  }
}

void GroupExchange::gone(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (trouble_) return;
  trouble_ =
      Trouble{rank, "exchange: rank " + std::to_string(rank) + " is gone: " + why, Clock::now()};
  in_trouble_.store(true, std::memory_order_release);
}

void GroupExchange::told(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (trouble_ && trouble_->rank < 0) return;
  trouble_ = Trouble{-1, why, Clock::now()};
  in_trouble_.store(true, std::memory_order_release);
}

void GroupExchange::begin_call(std::stop_token stop, bool is_quick) {
  stop_ = std::move(stop);
  stopped_.reset();
  looks_ = is_quick ? std::this_thread::get_id() : std::thread::id();
  looked_ = Clock::now();
}

std::optional<nb::python_error> GroupExchange::end_call() {
  stop_ = {};
  looks_ = {};
  return std::exchange(raised_, std::nullopt);
}

void GroupExchange::look_for_signals() {
  const Clock::time_point now = Clock::now();
  if (now - looked_ < between_looks) return;
  looked_ = now;
  {
    const nb::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() == 0) return;
    raised_.emplace();
  }
  stop_waiting();
}

void GroupExchange::stop_waiting() {
  const std::string why =
      "rank " + std::to_string(rank_) + " was stopped while it waited for others";
  told(why);
  tell(why);
  throw Stopped(why);
}

void GroupExchange::check(const Messages& messages) {
  if (looks_ == std::this_thread::get_id()) look_for_signals();
  if (!in_trouble_.load(std::memory_order_acquire) && !stop_.stop_requested()) return;
  const Clock::time_point now = Clock::now();
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (trouble_) {
      if (trouble_->rank < 0) throw Error(trouble_->why);
      const auto time = messages.waits_for(trouble_->rank) ? time_for_words : time_for_others;
      if (now - trouble_->since < time) return;
      why = trouble_->why;
      trouble_->rank = -1;
    }
  }
  if (!why.empty()) {
    tell(why);
    throw Error(why);
  }
  if (!stopped_) stopped_ = now;
  if (now - *stopped_ >= time_to_stop) stop_waiting();
}

}  // namespace treadle::python
