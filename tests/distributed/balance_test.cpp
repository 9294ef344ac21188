// How evenly masks are spread over ranks, and how little travels, with layouts as calls have them.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "api/stages.h"
#include "backend/cpu/make_cpu.h"
#include "distributed/assignment.h"
#include "treadle/mods.h"
#include "treadle/patterns.h"

namespace treadle::distributed {
namespace {

// A call of 8 query heads on 4 key heads of 64.
struct Measured {
  PlanCall call;
  std::vector<layout::Tiles> tiles;
  std::vector<PassWork> passes;

  Measured(const MaskMod& mask, std::int64_t length) {
    Options options;
    options.mask = mask;
    const api::Stages made = api::stages_of(options);
    const auto cpu = backend::cpu::make_cpu(made.program, "");
    const backend::Bindings bound{.mask = api::memory_of(made.program.mask.slots(), made.captures)};
    const backend::Sizes sizes{.batch = 1,
                               .heads = 8,
                               .key_batch = 1,
                               .key_heads = 4,
                               .queries = length,
                               .keys = length,
                               .dim = 64,
                               .value_dim = 64};
    const auto executor = tbb_executor(2);
    const auto all = cpu->passes(sizes, bound, *executor);
    call = {.key_heads = 4, .per_key_head = 2, .queries = length, .keys = length};
    for (std::size_t pass = 0; pass < all->count(); ++pass) {
      tiles.push_back(all->tiles(pass));
      call.tiles_per_leaf.push_back(all->tiles_per_leaf(pass));
      passes.push_back(work_of(*all, pass, sizes,
                               leaves_of(tiles.back().count(), call.tiles_per_leaf.back()),
                               *executor));
    }
  }

  [[nodiscard]] Assignment on(int ranks) const {
    const Shards shards = Shards::even(call.queries.count(), ranks);
    return assign(call, passes, tiles, shards, shards, {});
  }
};

MaskMod documents(std::int64_t length, int count) {
  std::mt19937_64 random(5);
  std::vector<std::int32_t> starts(static_cast<std::size_t>(length));
  for (int i = 0; i < count; ++i)
    ++starts[std::uniform_int_distribution<std::size_t>(0, starts.size() - 1)(random)];
  auto ids = std::make_shared<Tensor>(DType::i32, Dims{length});
  std::int32_t id = 0;
  for (std::int64_t i = 0; i < length; ++i)
    ids->at<std::int32_t>({i}) = id += starts[static_cast<std::size_t>(i)];
  return mods::document({"ids", ids});
}

struct SpreadMask {
  const char* name;
  std::int64_t length;
  MaskMod mask;

  friend void PrintTo(const SpreadMask& mask, std::ostream* out) { *out << mask.name; }
};

class Balance : public testing::TestWithParam<SpreadMask> {};

INSTANTIATE_TEST_SUITE_P(
    Masks, Balance,
    testing::Values(
        SpreadMask{"causal", 32768, mods::causal()},
        SpreadMask{"window", 32768, mods::causal() & mods::window(4096)},
        SpreadMask{"documents", 32768, mods::causal() & documents(32768, 50)},
        SpreadMask{"prefix", 32768, MaskMod(parse("kv < 8192 || q >= kv"))},
        SpreadMask{"local_or_strided", 32768,
                   MaskMod(parse("q >= kv && (q - kv < 128 || (q - kv) % 128 == 0)"))},
        SpreadMask{"fixed", 32768,
                   MaskMod(parse("q >= kv && (kv % 128 == 127 || q // 128 == kv // 128)"))},
        SpreadMask{"bigbird", 16384,
                   patterns::bigbird({.length = 16384, .block_size = 64, .global = 2})}),
    [](const auto& info) { return info.param.name; });

TEST_P(Balance, IsCloseForAFewRanksAndForMany) {
  const Measured measured(GetParam().mask, GetParam().length);
  for (const int ranks : {2, 3, 4, 8, 16}) {
    if (GetParam().length / ranks < 2048) continue;  // leaves would be too few
    const Assignment assigned = measured.on(ranks);
    EXPECT_LE(assigned.taken().balance, 1.03) << ranks << " ranks\n" << assigned.describe();
    EXPECT_GE(assigned.taken().balance, 1);
  }
}

// Head groups apart, nothing has to move where every rank has all that its queries see.
TEST(SpreadCalls, WindowsStayAtHome) {
  const Measured measured(mods::causal() & mods::window(512), 32768);
  const Assignment assigned = measured.on(8);
  EXPECT_EQ(assigned.taken().head_groups, 1);
  // Keys of the window, and rows of the leaves that lie in two shards.
  EXPECT_LE(static_cast<double>(assigned.taken().forward_bytes),
            0.05 * static_cast<double>(assigned.all_gather));
}

TEST(SpreadCalls, OptionsDecide) {
  const Measured measured(mods::causal(), 8192);
  const Shards shards = Shards::even(8192, 8);
  const auto with = [&](const PlanOptions& options) {
    return assign(measured.call, measured.passes, measured.tiles, shards, shards, options);
  };
  EXPECT_EQ(with({.head_groups = 2}).taken().head_groups, 2);
  // A slow network wants few bytes, a fast one equal loads.
  const Candidate slow = with({.gigabits = 0.01}).taken(), fast = with({.gigabits = 1e6}).taken();
  const auto bytes = [](const Candidate& c) {
    return static_cast<double>(c.forward_bytes + c.backward_bytes);
  };
  EXPECT_LE(bytes(slow), 1.01 * bytes(fast));
  EXPECT_GT(slow.seconds(), fast.seconds());
  EXPECT_LT(with({.head_groups = 1, .sums = Sums::per_rank}).taken().backward_bytes,
            with({.head_groups = 1}).taken().backward_bytes);
}

}  // namespace
}  // namespace treadle::distributed
