// Plan cases: how evenly calls are spread over ranks, what travels, and how long planning takes.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/error.h"
#include "cli/bench_case.h"
#include "cli/bench_masks.h"
#include "cli/planned_call.h"
#include "layout/tile_weights.h"
#include "plan/tile_plan.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

constexpr std::int64_t query_heads = 32, shared_heads = 8, head_dim = 128;

// The last one of each 128, and the own block.
constexpr const char* narrow_fixed_text = "q >= kv && (kv % 128 == 127 || q // 128 == kv // 128)";

using MakeCall = std::function<PlannedCall(const backend::Sizes&, Executor&)>;

// A call that is measured when it is first planned.
class LongCall {
 public:
  LongCall(MakeCall make, std::int64_t length) : make_(std::move(make)), length_(length) {}

  const PlannedCall& measured(Executor& executor) {
    const backend::Sizes sizes{.batch = 1,
                               .heads = query_heads,
                               .key_batch = 1,
                               .key_heads = shared_heads,
                               .queries = length_,
                               .keys = length_,
                               .dim = head_dim,
                               .value_dim = head_dim};
    if (!call_) call_ = make_(sizes, executor);
    return *call_;
  }

 private:
  MakeCall make_;
  std::int64_t length_;
  std::optional<PlannedCall> call_;
};

// Of a mask that depends on the length.
MakeCall of_mask(MaskMod (*mask)(std::int64_t length)) {
  return [mask](const backend::Sizes& sizes, Executor& executor) {
    return planned_call("bench", mask(sizes.queries.count()), sizes, DType::bf16, executor);
  };
}

// BigBird with three blocks of 64 in a window, two for everybody, three at random: what the mask's layout
// would be, which takes too long to find from a million tokens' pairs.
PlannedCall bigbird(const backend::Sizes& sizes, Executor& executor) {
  constexpr std::int64_t block = 64, global = 2, random_blocks = 3;
  const std::int64_t blocks = sizes.keys.count() / block;
  std::mt19937_64 random(7);
  std::vector<std::vector<layout::Run>> of_blocks;
  for (std::int64_t query = 0; query < blocks; ++query) {
    std::vector<std::int64_t> seen{0, 1, query};
    if (query > 0) seen.push_back(query - 1);
    if (query + 1 < blocks) seen.push_back(query + 1);
    for (std::int64_t i = 0; i < random_blocks; ++i)
      seen.push_back(std::uniform_int_distribution<std::int64_t>(0, blocks - 1)(random));
    std::ranges::sort(seen);
    std::vector<layout::Run>& runs = of_blocks.emplace_back();
    if (query < global) {
      layout::append(runs, 0, blocks * block, true);
      continue;
    }
    std::int64_t end = 0;
    for (const std::int64_t key : seen) {
      if (key * block >= end) layout::append(runs, key * block, (key + 1) * block, true);
      end = (key + 1) * block;
    }
  }
  const layout::TileWeights weights = plan::tile_weights(plan::host_target(), DType::f32);
  const layout::Tiles tiles({layout::Order::Kind::blocks, block}, sizes.queries,
                            layout::best_height(block, weights));
  std::vector<std::vector<layout::Run>> of_tiles;
  for (std::int64_t tile = 0; tile < tiles.count(); ++tile)
    of_tiles.push_back(of_blocks[static_cast<std::size_t>(tiles.query(tile, 0) / block)]);
  const layout::Layout layout(sizes.extent(), tiles, false, false, of_tiles);
  return planned_call(layout, sizes, DType::bf16, executor);
}

// Against all pairs of the passes: each is given to some rank.
void check(const PlannedCall& call, const distributed::Assignment& plan) {
  double all = 0, given = 0;
  for (const distributed::PassWork& pass : call.passes) {
    const std::int64_t times =
        call.call.key_heads / pass.head_lists * (call.call.batch / pass.batch_lists);
    for (const std::int64_t pairs : pass.pairs) all += static_cast<double>(pairs * times);
  }
  for (const double pairs : plan.pairs) given += pairs;
  if (all != given) base::internal_error("bench: {} pairs are planned of {}", given, all);
}

// The planner runs in one thread: of that thread's time, the least of a few runs.
double best_own_ms(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  };
  double best = 1e300;
  for (int i = 0; i < 5; ++i) {
    const double start = now();
    work();
    best = std::min(best, now() - start);
  }
  return best;
}

Measured measure(LongCall& of, int ranks, Executor& executor) {
  const PlannedCall& call = of.measured(executor);
  const auto plan = call.assign(ranks, {});
  check(call, plan);
  const distributed::Candidate& taken = plan.taken();
  Measured measured{.heads = query_heads,
                    .key_heads = shared_heads,
                    .queries = call.call.queries.count(),
                    .keys = call.call.keys.count(),
                    .dtype = "bf16",
                    .dim = head_dim,
                    .value_dim = head_dim};
  measured.ms = best_own_ms([&] { (void)call.assign(ranks, {}); });
  measured.balance = taken.balance;
  measured.bytes = taken.forward_bytes;
  measured.ratio = static_cast<double>(taken.forward_bytes) / static_cast<double>(plan.all_gather);
  measured.note = fmt::format(
      "forward bytes of an all-gather's; backward {:.3f}; {} head groups, {}; {} messages; leaves "
      "measured in {:.0f} ms",
      static_cast<double>(taken.backward_bytes) / static_cast<double>(plan.all_gather),
      taken.head_groups, name_of(taken.route), taken.messages, call.measure_ms);
  return measured;
}

}  // namespace

std::vector<BenchCase> plan_cases() {
  struct Mask {
    const char* name;
    MakeCall make;
  };
  const Mask masks[] = {
      {"causal", of_mask([](std::int64_t) { return mods::causal(); })},
      {"window", of_mask([](std::int64_t) { return mods::causal() & mods::window(4096); })},
      {"documents", of_mask([](std::int64_t length) {
         return mods::causal() & random_documents(length, 1000);
       })},
      {"prefix", of_mask([](std::int64_t length) {
         return MaskMod([prefix = length / 4](Index, Index, Index q, Index kv) {
           return kv < prefix || q >= kv;
         });
       })},
      {"local-or-strided",
       of_mask([](std::int64_t) { return MaskMod(parse(local_or_strided_text)); })},
      {"fixed", of_mask([](std::int64_t) { return MaskMod(parse(narrow_fixed_text)); })},
      {"bigbird", bigbird}};
  struct Length {
    const char* name;
    std::int64_t tokens;
    std::vector<int> ranks;
  };
  const Length lengths[] = {{"128k", std::int64_t{1} << 17, {16, 64}},
                            {"1m", std::int64_t{1} << 20, {16, 64, 256, 1024}}};
  std::vector<BenchCase> cases;
  for (const Mask& mask : masks) {
    for (const Length& length : lengths) {
      // Its leaves are measured once for all numbers of ranks.
      const auto call = std::make_shared<LongCall>(mask.make, length.tokens);
      for (const int ranks : length.ranks) {
        cases.push_back({fmt::format("plan-{}-{}-{}", mask.name, length.name, ranks), "plan",
                         [=](Executor& executor) { return measure(*call, ranks, executor); }});
      }
    }
  }
  return cases;
}

}  // namespace treadle::cli
