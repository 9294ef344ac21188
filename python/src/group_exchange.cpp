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
constexpr std::size_t most_kept = 32;
constexpr auto between_looks = std::chrono::milliseconds(50);
constexpr auto time_to_let_go = std::chrono::seconds(60);

nb::object checked(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

nb::object memory_of(const std::byte* data, std::size_t size) {
  auto* address = reinterpret_cast<char*>(const_cast<std::byte*>(data));
  return checked(PyMemoryView_FromMemory(address, static_cast<Py_ssize_t>(size), PyBUF_WRITE));
}

nb::object copy_of(std::span<const std::byte> bytes) {
  return checked(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                               static_cast<Py_ssize_t>(bytes.size())));
}

// Tags keep sizes apart: a message meets a receive of its own size or none. Gathers have tags of their own.
std::int64_t tag_of(std::size_t size, bool is_gather) {
  constexpr std::size_t sizes = (std::size_t{1} << 30) - 7;
  return static_cast<std::int64_t>(2 * (size % sizes)) + (is_gather ? 1 : 0);
}

// gloo's own words, without the line of its code and the advice.
std::string reason_of(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  if (const std::size_t line = text.find(".cc:"); line != std::string::npos)
    if (const std::size_t end = text.find("] ", line); end != std::string::npos)
      text.erase(0, end + 2);
  text.resize(std::min(text.find(". This is "), text.size()));
  return text;
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
    // A handler of a signal may have raised in between.
    for (bool closed = false; !closed;) {
      try {
        exchange_.close();
        closed = true;
      } catch (const Error&) {
      }
    }
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

GroupExchange::GroupExchange(int rank, int ranks, nb::object port)
    : rank_(rank), ranks_(ranks), port_(std::move(port)) {
  receive_ = port_.attr("receive");
  send_ = port_.attr("send");
  empty_ = port_.attr("empty");
  tensor_of_ = port_.attr("tensor_of");
  received_ = port_.attr("received");
  sent_ = port_.attr("sent");
  kept_ = port_.attr("kept");
}

GroupExchange::~GroupExchange() {
  const nb::gil_scoped_acquire lock;
  for (nb::object* object :
       {&port_, &receive_, &send_, &empty_, &tensor_of_, &received_, &sent_, &kept_})
    object->reset();
}

// Calls functions of torch's and of the standard library that are C's: no code of Python's runs, in which a handler of a
// signal could raise.
void GroupExchange::begin_receive(const Receive& receive, std::size_t number, bool is_gather,
                                  const std::shared_ptr<Messages>& messages) {
  const std::span<std::byte> bytes = receive.bytes;
  const bool is_large = bytes.size() > most_copied;
  const nb::object tensor =
      is_large ? tensor_of_(memory_of(bytes.data(), bytes.size())) : empty_(bytes.size());
  const nb::object work =
      receive_(nb::make_tuple(tensor), receive.rank, tag_of(bytes.size(), is_gather));
  received_[nb::int_(receive.rank)].attr("put")(
      nb::make_tuple(work, tensor, messages, number, is_large));
}

void GroupExchange::begin_send(const Send& send, std::size_t number, bool is_gather,
                               const std::shared_ptr<Messages>& messages) {
  const std::span<const std::byte> bytes = send.bytes;
  const bool is_large = bytes.size() > most_copied;
  const nb::object tensor =
      tensor_of_(is_large ? memory_of(bytes.data(), bytes.size()) : copy_of(bytes));
  const nb::object work = send_(nb::make_tuple(tensor), send.rank, tag_of(bytes.size(), is_gather));
  if (is_large) {
    sent_.attr("put")(nb::make_tuple(work, tensor, messages, number, send.rank));
    return;
  }
  messages->sent(number);
  kept_.attr("append")(nb::make_tuple(work, tensor, nb::none(), 0, send.rank));
  while (nb::len(kept_) > most_kept) sent_.attr("put")(kept_.attr("popleft")());
}

std::unique_ptr<Transfer> GroupExchange::begin(std::span<const Send> sends,
                                               std::span<const Receive> receives, bool is_gather) {
  auto messages = std::make_shared<Messages>(sends, receives);
  auto transfer = std::make_unique<GroupTransfer>(*this, messages, is_gather);
  const nb::gil_scoped_acquire lock;
  const auto try_one = [&](int rank, std::size_t bytes, const auto& begin_one) {
    try {
      begin_one();
    } catch (const std::exception& error) {
      messages->dropped(bytes > most_copied);
      gone(rank, error.what());
    }
  };
  for (std::size_t i = 0; i < receives.size(); ++i)
    try_one(receives[i].rank, receives[i].bytes.size(),
            [&] { begin_receive(receives[i], i, is_gather, messages); });
  for (std::size_t i = 0; i < sends.size(); ++i)
    try_one(sends[i].rank, sends[i].bytes.size(),
            [&] { begin_send(sends[i], i, is_gather, messages); });
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
  trouble_ = Trouble{rank, "exchange: rank " + std::to_string(rank) + " is gone: " + reason_of(why),
                     Clock::now()};
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
