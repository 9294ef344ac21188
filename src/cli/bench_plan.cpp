// Plan cases: how evenly calls are spread over ranks, what travels, and how long planning takes.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "cli/bench_case.h"
#include "cli/bench_masks.h"
#include "cli/planned_call.h"
#include "treadle/mods.h"

namespace treadle::cli {
namespace {

constexpr std::int64_t query_heads = 32, shared_heads = 8, head_dim = 128;

// The last one of each 128, and the own block.
constexpr const char* narrow_fixed_text =
    "q >= kv && (kv % 128 == 127 || q // 128 == kv // 128)";

// A call that is measured when it is first planned.
class LongCall {
 public:
  LongCall(MaskMod (*make)(std::int64_t length), std::int64_t length)
      : make_(make), length_(length) {}

  const PlannedCall& measured(Executor& executor) {
    const backend::Sizes sizes{.batch = 1,
                               .heads = query_heads,
                               .key_batch = 1,
                               .key_heads = shared_heads,
                               .queries = length_,
                               .keys = length_,
                               .dim = head_dim,
                               .value_dim = head_dim};
    if (!call_) call_ = planned_call("bench", make_(length_), sizes, DType::bf16, executor);
    return *call_;
  }

 private:
  MaskMod (*make_)(std::int64_t length);
  std::int64_t length_;
  std::optional<PlannedCall> call_;
};

// Against all pairs of the passes: each is given to some rank.
void check(const PlannedCall& call, const distributed::Assignment& plan) {
  double all = 0, given = 0;
  for (const distributed::PassWork& pass : call.passes)
    for (const std::int64_t pairs : pass.pairs)
      all +=
          static_cast<double>(pairs) * static_cast<double>(call.call.key_heads / pass.head_lists *
                                                           call.call.batch / pass.batch_lists);
  for (const double pairs : plan.pairs) given += pairs;
  if (all != given) base::internal_error("bench: {} pairs are planned of {}", given, all);
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
  measured.ms = best_ms([&] { (void)call.assign(ranks, {}); });
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
    MaskMod (*make)(std::int64_t length);
  };
  const Mask masks[] = {
      {"causal", [](std::int64_t) { return mods::causal(); }},
      {"window", [](std::int64_t) { return mods::causal() & mods::window(4096); }},
      {"documents",
       [](std::int64_t length) { return mods::causal() & random_documents(length, 1000); }},
      {"prefix",
       [](std::int64_t length) {
         return MaskMod([prefix = length / 4](Index, Index, Index q, Index kv) {
           return kv < prefix || q >= kv;
         });
       }},
      {"local-or-strided", [](std::int64_t) { return MaskMod(parse(local_or_strided_text)); }},
      {"fixed", [](std::int64_t) { return MaskMod(parse(narrow_fixed_text)); }}};
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
