// What the planner thinks that ranks send and receive is what their plans then announce, and what calls move.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "distributed/held_plan.h"
#include "rank_threads.h"
#include "spread_call.h"

namespace treadle {
namespace {

namespace td = distributed;

using test::Exchanges;

struct Announced {
  const char* name;
  std::string mask;
  int ranks;
  std::int64_t length;
  int head_groups = 0;
  bool cuts = false;  // some leaves are cut
  double within = 0;  // where pieces of keys lie at equal distances, their share is counted
};

void PrintTo(const Announced& of, std::ostream* to) {
  *to << of.name << " on " << of.ranks << " ranks, " << of.head_groups << " head groups";
}

class AnnouncedTraffic : public testing::TestWithParam<Announced> {};

std::string difference(const char* name, int rank, const td::Traffic& real,
                       const td::Traffic& modelled, double within = 0) {
  const auto alike = [&](std::int64_t a, std::int64_t b) {
    return std::abs(static_cast<double>(a - b)) <= within * static_cast<double>(a);
  };
  if (alike(real.sent, modelled.sent) && alike(real.received, modelled.received) &&
      real.messages == modelled.messages)
    return "";
  return fmt::format("{} of rank {}: sends {}, modelled {}; receives {}, {}; messages {}, {}\n",
                     name, rank, real.sent, modelled.sent, real.received, modelled.received,
                     real.messages, modelled.messages);
}

TEST_P(AnnouncedTraffic, IsWhatThePlannerThought) {
  const Announced& of = GetParam();
  Options options;
  options.mask = parse(of.mask, {});
  test::SpreadCall call(options,
                        {.ranks = of.ranks, .heads = 8, .key_heads = 4, .queries = of.length});
  call.plan_options.head_groups = of.head_groups;
  std::mutex mutex;
  std::string all;
  bool cut = false;
  test::on_ranks(
      in_process_exchanges(of.ranks, {.seed = 1}),
      [&](int rank, const std::shared_ptr<Exchange>& exchange) {
        td::Assignment assigned;
        const td::Plan plan =
            td::make_plan(call.attention, exchange, test::SpreadCall::spec(call.q),
                          test::SpreadCall::spec(call.k), test::SpreadCall::spec(call.v),
                          call.queries, call.keys, call.call, call.plan_options,
                          [&](td::Plan::Held& held, std::span<const td::PassWork> work) {
                            assigned = td::assign_work(call.attention, call.call, held, work);
                            return assigned.pieces;
                          });
        const auto at = static_cast<std::size_t>(rank);
        const std::string found =
            difference("forward", rank, plan.forward_traffic(), assigned.forward[at], of.within) +
            difference("backward", rank, plan.backward_traffic(), assigned.backward[at], of.within);
        const Forward y = call.forward(rank, plan);
        (void)call.backward(rank, plan, y);
        const std::lock_guard lock(mutex);
        all += found +
               difference("forward call", rank, plan.forward_moved(), plan.forward_traffic()) +
               difference("backward call", rank, plan.backward_moved(), plan.backward_traffic());
        cut = cut || std::ranges::any_of(plan.held().parts, &td::PartShape::cut);
      });
  EXPECT_EQ(all, "");
  EXPECT_TRUE(cut || !of.cuts);
}

std::vector<Announced> announced() {
  std::vector<Announced> all;
  for (const int ranks : {4, 16}) {
    for (const int groups : {0, 1, 4}) {
      all.push_back({"causal", "q >= kv", ranks, 3000, groups});
      all.push_back({"window", "q >= kv and q - kv < 300", ranks, 3000, groups});
      all.push_back({"prefix", "kv < 700 or q >= kv", ranks, 3000, groups});
      all.push_back({"documents", "q // 500 == kv // 500 and q >= kv", ranks, 3000, groups});
      all.push_back({"some rows and keys for all", "q < 32 or kv < 32 or abs(q - kv) < 40", ranks,
                     6000, groups, ranks == 16});
      all.push_back({"two terms", "q >= kv and (q - kv < 300 or kv < 100)", ranks, 3000, groups});
      all.push_back({.name = "fixed",
                     .mask = "q >= kv and (q // 128 == kv // 128 or kv % 128 >= 124)",
                     .ranks = ranks,
                     .length = 3000,
                     .head_groups = groups,
                     .within = 0.05});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Masks, AnnouncedTraffic, testing::ValuesIn(announced()));

}  // namespace
}  // namespace treadle
