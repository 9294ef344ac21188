// A rank fails, stops, falls silent or dies: the others hear of it, and nobody hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <new>
#include <set>

#include "spread_call.h"
#include "treadle/error.h"
#include "treadle/treadle.h"

namespace treadle {
namespace {

namespace td = distributed;

using namespace std::chrono_literals;
using test::Exchanges;
using test::SpreadCall;
using test::SpreadShape;
using test::texts_of_ranks;
using testing::Each;
using testing::HasSubstr;
using Texts = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

Options causal() {
  Options options;
  options.mask = parse("q >= kv", {});
  return options;
}

// Does something when a call comes to its work, and it all in the calling thread.
class Hooked final : public Executor {
 public:
  explicit Hooked(std::function<void()> hook) : hook_(std::move(hook)) {}
  [[nodiscard]] int threads() const override { return 1; }
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    hook_();
    for (std::int64_t i = 0; i < count; ++i) task(i);
  }

 private:
  std::function<void()> hook_;
};

// Memory that must stay as it is.
struct Untouched {
  Tensor tensor;
  explicit Untouched(const Tensor& like) : tensor(like.dtype(), like.shape()) {
    std::memset(tensor.view().data(), 0x5a, bytes());
  }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
  }
  [[nodiscard]] bool is() const {
    const auto* data = static_cast<const std::byte*>(tensor.view().data());
    return std::all_of(data, data + bytes(), [](std::byte b) { return b == std::byte{0x5a}; });
  }
};

struct Results {
  Untouched out, lse, dq, dk, dv;
  Results(const SpreadCall& call, int rank)
      : out(Tensor(call.q.dtype(), call.rows(call.q, rank).shape())),
        lse(Tensor(DType::f32, {call.q.size(0), call.q.size(1), call.queries.count(rank)})),
        dq(out.tensor),
        dk(Tensor(call.k.dtype(), call.key_rows(call.k, rank).shape())),
        dv(dk.tensor) {}
  [[nodiscard]] bool are_untouched() const {
    return out.is() && lse.is() && dq.is() && dk.is() && dv.is();
  }
};

void run_forward(const SpreadCall& call, int rank, const td::Plan& plan, Results& results,
                 const Call& with) {
  td::forward_into(call.attention, plan,
                   {results.out.tensor, results.lse.tensor.view(), std::nullopt}, call.mine(rank),
                   with);
}
void run_backward(const SpreadCall& call, int rank, const td::Plan& plan, const Forward& y,
                  Results& results, const Call& with) {
  td::backward_into(call.attention, plan,
                    {results.dq.tensor, results.dk.tensor, results.dv.tensor, {}, std::nullopt},
                    call.mine(rank), {y.out, y.lse}, call.rows(call.dout, rank), std::nullopt,
                    with);
}

// A rank whose calls go wrong in a way of their own: all throw the same soon, nothing is written, and the next calls
// are right.
void expect_same_failure(SpreadCall& call, int failing, const Call& bad, const std::string& text) {
  call.find_whole();
  std::atomic<int> touched = 0;
  const int ranks = call.queries.ranks();
  std::vector<std::string> forwards(static_cast<std::size_t>(ranks)), backwards = forwards;
  test::on_ranks(
      in_process_exchanges(ranks), [&](int r, const std::shared_ptr<Exchange>& exchange) {
        const td::Plan plan = call.plan(exchange);
        const Forward y = call.forward(r, plan);
        Results results(call, r);
        const auto caught = [&](const auto& f) -> std::string {
          try {
            f(r == failing ? bad : call.call);
          } catch (const std::exception& error) {
            return error.what();
          }
          return "nothing";
        };
        const auto at = static_cast<std::size_t>(r);
        forwards[at] = caught([&](const Call& with) { run_forward(call, r, plan, results, with); });
        backwards[at] =
            caught([&](const Call& with) { run_backward(call, r, plan, y, results, with); });
        if (!results.are_untouched()) ++touched;
        EXPECT_EQ(call.differences(r, plan), "");
      });
  EXPECT_THAT(forwards, Each("forward: " + text));
  EXPECT_THAT(backwards, Each("backward: " + text));
  EXPECT_EQ(touched, 0);
}

TEST(FailingRank, WhoseMemoryIsOut) {
  SpreadCall call(causal());
  Call bad = call.call;
  bad.executor = std::make_shared<Hooked>([] { throw std::bad_alloc(); });
  for (const int failing : {0, 1, 2})
    expect_same_failure(call, failing, bad, fmt::format("rank {}: out of memory", failing));
}

TEST(FailingRank, WhoseExecutorThrows) {
  SpreadCall call(causal());
  Call bad = call.call;
  bad.executor = std::make_shared<Hooked>([] { throw std::runtime_error("no threads today"); });
  expect_same_failure(call, 1, bad, "rank 1: no threads today");
}

TEST(FailingRank, WhoIsStopped) {
  SpreadCall call(causal());
  std::stop_source source;
  source.request_stop();
  Call bad = call.call;
  bad.stop = source.get_token();
  expect_same_failure(call, 2, bad, "rank 2: the call was stopped");
}

TEST(FailingRank, StopsAllWithStopped) {
  SpreadCall call(causal());
  std::stop_source source;
  Call bad = call.call;
  bad.stop = source.get_token();
  bad.executor = std::make_shared<Hooked>([&] { source.request_stop(); });
  std::atomic<int> stopped = 0;
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const td::Plan plan = call.plan(exchange);
    Results results(call, r);
    try {
      run_forward(call, r, plan, results, r == 0 ? bad : call.call);
    } catch (const Stopped& error) {
      EXPECT_STREQ(error.what(), "forward: rank 0: the call was stopped");
      ++stopped;
    }
  });
  EXPECT_EQ(stopped, 3);
}

// Whenever a stop comes, all ranks return or all throw. The executor counts its runs and stops in a later one each time.
TEST(FailingRank, StoppedAtAnyTime) {
  Options options;
  // Two passes, so that rows are joined at the end of a call.
  options.mask = parse("q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)", {});
  options.score_mod =
      parse("score + bias[h]", {Capture("bias", std::make_shared<Tensor>(DType::f32, Dims{4}))});
  options.gradients = {"bias"};
  SpreadCall call(options);
  const Tensor sinks(DType::f32, {4});
  call.call.sinks = ConstView(sinks);
  call.find_whole();
  int stopped = 0, returned = 0;
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const td::Plan plan = call.plan(exchange);
    const Forward y = call.forward(r, plan);
    Tensor bias(DType::f32, {4});
    for (const bool forward : {true, false}) {
      for (int at = 0; at < 12; ++at) {
        std::stop_source source;
        Call with = call.call;
        int runs = 0;
        if (r == 1) {
          with.stop = source.get_token();
          with.executor = std::make_shared<Hooked>([&] {
            if (runs++ == at) source.request_stop();
          });
        }
        Results results(call, r);
        bool threw = false;
        try {
          if (forward) {
            run_forward(call, r, plan, results, with);
          } else {
            td::backward_into(call.attention, plan,
                              {results.dq.tensor,
                               results.dk.tensor,
                               results.dv.tensor,
                               {{"bias", bias.view()}},
                               std::nullopt},
                              call.mine(r), {y.out, y.lse}, call.rows(call.dout, r), std::nullopt,
                              with);
          }
        } catch (const Stopped&) {
          threw = true;
        }
        const std::vector<char> all = [&] {
          std::vector<char> gathered(3);
          const char own = threw ? 1 : 0;
          const auto transfer = exchange->start_gather(std::as_bytes(std::span(&own, 1)),
                                                       std::as_writable_bytes(std::span(gathered)));
          std::vector<std::size_t> arrived;
          while (!transfer->test(arrived)) std::this_thread::yield();
          return gathered;
        }();
        EXPECT_THAT(all, Each(threw ? 1 : 0))
            << "run " << at << " of " << (forward ? "a forward" : "a backward");
        if (threw) {
          EXPECT_TRUE(results.are_untouched());
        } else {
          EXPECT_EQ(forward ? SpreadCall::difference("out", results.out.tensor, call.whole.out,
                                                     call.queries.begin(r), call.queries.end(r))
                            : SpreadCall::difference("dk", results.dk.tensor, call.gradients.dk,
                                                     call.keys.begin(r), call.keys.end(r)),
                    "");
        }
        if (r == 1) ++(threw ? stopped : returned);
      }
    }
    EXPECT_EQ(call.differences(r, plan), "");
  });
  EXPECT_GT(stopped, 3);
  EXPECT_GT(returned, 3);
}

// What the score mod reads is out of bounds for queries of one rank alone.
TEST(FailingRank, WhoseModReadsOutOfBounds) {
  auto place = std::make_shared<Tensor>(DType::i32, Dims{700});
  Options options = causal();
  const std::vector<Capture> captures{
      Capture("place", place), Capture("table", std::make_shared<Tensor>(DType::f32, Dims{8}))};
  options.score_mod = parse("score + table[place[q]]", captures);
  SpreadCall call(options);
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const td::Plan plan = call.plan(exchange);
    (void)call.forward(r, plan);
  });
  place->data<std::int32_t>()[690] = 8;
  std::string alone;
  try {
    (void)call.attention.forward({call.q, call.k, call.v}, call.call);
  } catch (const ModError& error) {
    alone = error.what();
  }
  ASSERT_THAT(alone, HasSubstr("outside its length 8"));
  std::mutex mutex;
  std::set<std::string> texts;
  test::on_ranks(in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
    const td::Plan plan = call.plan(exchange);
    try {
      (void)call.forward(r, plan);
      ADD_FAILURE() << "rank " << r << " throws nothing";
    } catch (const ModError& error) {
      const std::lock_guard lock(mutex);
      texts.insert(error.what());
    }
  });
  ASSERT_EQ(texts.size(), 1U);
  // The sentence is one machine's, with the rank in front; there may be several such pairs.
  EXPECT_THAT(*texts.begin(), testing::MatchesRegex("forward: rank [0-2]: .*"));
  EXPECT_THAT(*texts.begin(), HasSubstr(alone.substr(0, alone.find(" at (b"))));
}

// Times at which a rank may fall silent or die.
enum class When { before_plan, before_forward, in_forward, before_backward, in_backward };

std::string name_of(When when) {
  switch (when) {
    case When::before_plan: return "BeforePlan";
    case When::before_forward: return "BeforeForward";
    case When::in_forward: return "InForward";
    case When::before_backward: return "BeforeBackward";
    case When::in_backward: return "InBackward";
  }
  return "";
}
void PrintTo(When when, std::ostream* out) { *out << name_of(when); }

class LostRank : public testing::TestWithParam<When> {
 protected:
  // What ranks throw and how long after rank 1 was lost.
  struct Ends {
    Texts texts;
    std::vector<Clock::duration> after;
  };
  Ends lose(const std::function<void(Exchange&)>& lose_rank) {
    SpreadCall call(causal());
    call.plan_options.patience = 600ms;
    std::atomic<Clock::time_point> lost = Clock::now();
    Ends ends;
    ends.after.resize(3);
    ends.texts = texts_of_ranks(
        in_process_exchanges(3), [&](int r, const std::shared_ptr<Exchange>& exchange) {
          const auto lose_now = [&] {
            lost = Clock::now();
            lose_rank(*exchange);
          };
          const auto at = [&](When when) {
            if (r == 1 && when == GetParam()) lose_now();
          };
          Call with = call.call;
          bool armed = false;
          with.executor = std::make_shared<Hooked>([&] {
            if (armed) lose_now();
            armed = false;
          });
          try {
            at(When::before_plan);
            const td::Plan plan = call.plan(exchange);
            at(When::before_forward);
            armed = r == 1 && GetParam() == When::in_forward;
            const Forward y = td::forward(call.attention, plan, call.mine(r), with);
            at(When::before_backward);
            armed = r == 1 && GetParam() == When::in_backward;
            (void)td::backward(call.attention, plan, call.mine(r), {y.out, y.lse},
                               call.rows(call.dout, r), std::nullopt, with);
          } catch (...) {
            ends.after[static_cast<std::size_t>(r)] = Clock::now() - lost.load();
            throw;
          }
        });
    return ends;
  }
};

TEST_P(LostRank, IsNamedWhenSilent) {
  const Ends ends = lose(silence_rank);
  for (const std::size_t r : {0U, 2U}) {
    EXPECT_THAT(ends.texts[r], HasSubstr("waited 0.6 s for rank 1, which did not take part"));
  }
  EXPECT_NE(ends.texts[1], "");
}

TEST_P(LostRank, IsNamedWhenDead) {
  const Ends ends = lose(kill_rank);
  for (const std::size_t r : {0U, 2U}) {
    EXPECT_THAT(ends.texts[r], HasSubstr("rank 1, which is dead")) << r;
  }
  EXPECT_THAT(ends.texts[1], HasSubstr("is dead"));
}

INSTANTIATE_TEST_SUITE_P(Times, LostRank,
                         testing::Values(When::before_plan, When::before_forward, When::in_forward,
                                         When::before_backward, When::in_backward),
                         [](const auto& info) { return name_of(info.param); });

// Afterwards every call says at once that the ranks are lost.
TEST(LostRanks, SayHowItBegan) {
  SpreadCall two(causal(), {.ranks = 2});
  two.plan_options.patience = 600ms;
  const Texts texts = texts_of_ranks(in_process_exchanges(2),
                                     [&](int r, const std::shared_ptr<Exchange>& exchange) {
                                       const td::Plan plan = two.plan(exchange);
                                       if (r == 1) return;
                                       EXPECT_THROW((void)two.forward(r, plan), Error);
                                       (void)two.forward(r, plan);
                                     });
  EXPECT_THAT(texts[0],
              testing::StartsWith("forward: the ranks have lost one another; new exchanges and "
                                  "plans are needed. It began with: "));
}

}  // namespace
}  // namespace treadle
