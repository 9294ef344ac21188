// Every allocation of one rank fails in turn: nobody hangs, who returns has what is right, and mostly all ranks throw the
// same and go on.
#include <gtest/gtest.h>

#include <iostream>

#include "faults.h"
#include "spread_call.h"

namespace treadle {
namespace {

using namespace std::chrono_literals;
using test::faults;
using test::SpreadCall;

class RankWithFaults : public testing::Test {
 protected:
  // In which of the calls allocations fail.
  enum class In { plan, forward, backward };

  RankWithFaults() : call_(options()) {
    // Leaves are joined at the end, and a gradient is summed over ranks.
    call_.keys.starts = {0, 10, 500, 700};
    call_.plan_options.patience = 20s;
    call_.call.sinks = ConstView(sinks_);
    call_.find_whole();
    (void)run(In::plan, -1);  // what is kept for ever is allocated now
  }
  static Options options() {
    Options options;
    options.mask = parse("q >= kv and (q - kv < 64 or (q - kv) % 64 == 0)", {});
    options.score_mod =
        parse("score + bias[h]", {Capture("bias", std::make_shared<Tensor>(DType::f32, Dims{4}))});
    options.gradients = {"bias"};
    return options;
  }

  struct Ends {
    std::int64_t allocations = 0;
    std::vector<std::string> thrown;
    bool agreed = false;  // all threw the same, or none threw
  };
  // A call with one fault, and another one after it.
  Ends run(In in, std::int64_t fault) {
    Ends ends;
    std::vector<std::string> wrong(3), later(3);
    ends.thrown = test::texts_of_ranks(
        test::Exchanges(in_process_exchanges(3)), [&](int r, const auto& exchange) {
          const auto guarded = [&](bool here, const auto& f) {
            if (r != 1 || !here) return f();
            struct Disarm {
              std::int64_t& count;
              ~Disarm() { count = faults.disarm(); }
            } disarm{ends.allocations};
            faults.arm_this_thread(fault);
            return f();
          };
          const auto at = static_cast<std::size_t>(r);
          std::string thrown;
          std::optional<distributed::Plan> plan;
          try {
            plan = guarded(in == In::plan, [&] { return call_.plan(exchange); });
            const Forward y = guarded(in == In::forward, [&] { return call_.forward(r, *plan); });
            wrong[at] = call_.difference(r, y);
            if (in == In::backward) {
              const Backward g = guarded(true, [&] { return call_.backward(r, *plan, y); });
              wrong[at] += call_.difference(r, g);
            }
          } catch (const std::exception& error) {
            thrown = error.what();
          }
          try {
            if (!plan) plan = call_.plan(exchange);
            wrong[at] += call_.differences(r, *plan);
          } catch (const std::exception& error) {
            later[at] = error.what();
          }
          if (!thrown.empty()) throw std::runtime_error(thrown);
        });
    for (int r = 0; r < 3; ++r) EXPECT_EQ(wrong[static_cast<std::size_t>(r)], "") << "rank " << r;
    const auto none = [](const std::vector<std::string>& texts) {
      return std::ranges::all_of(texts, &std::string::empty);
    };
    ends.agreed = none(later) &&
                  std::ranges::adjacent_find(ends.thrown, std::not_equal_to()) == ends.thrown.end();
    if (!ends.agreed) {
      // Then the others hear of it as soon as they need this rank.
      EXPECT_FALSE(ends.thrown[1].empty());
      for (const std::string& text : later) EXPECT_NE(text, "");
    } else if (!ends.thrown[1].empty()) {
      EXPECT_NE(ends.thrown[1].find("rank 1: out of memory"), std::string::npos) << ends.thrown[1];
    }
    return ends;
  }

  void fail_in(In in) {
    const std::int64_t all = run(in, -1).allocations;
    ASSERT_GT(all, 20);
    const int rounds = static_cast<int>(std::min<std::int64_t>(all, test::fuzz_count(150)));
    int agreed = 0, threw = 0;
    std::mt19937_64 random = test::rng(test::fuzz_seed(0));
    for (int round = 0; round < rounds; ++round) {
      const std::int64_t fault = test::fuzz_size() == test::FuzzSize::full && all <= rounds ? round
                                 : round < 5 ? round  // before a call has begun
                                             : test::random_int(random, 0, all - 1);
      SCOPED_TRACE(fmt::format("allocation {} of {}", fault, all));
      const Ends ends = run(in, fault);
      // Nobody waits for a rank that has gone.
      for (const std::string& text : ends.thrown)
        EXPECT_EQ(text.find("did not take part"), std::string::npos) << text;
      if (!ends.thrown[1].empty()) ++threw;
      if (ends.agreed && !ends.thrown[1].empty()) ++agreed;
      if (HasFailure()) return;
    }
    std::cout << all << " allocations; of " << rounds << " faults " << threw << " threw, " << agreed
              << " the same on all ranks\n";
    EXPECT_GT(agreed, threw / 3);
  }

  SpreadCall call_;
  Tensor sinks_ = Tensor(DType::f32, {4});
};

TEST_F(RankWithFaults, InPlan) { fail_in(In::plan); }
TEST_F(RankWithFaults, InForward) { fail_in(In::forward); }
TEST_F(RankWithFaults, InBackward) { fail_in(In::backward); }

}  // namespace
}  // namespace treadle
