// Masks with remainders: exact layouts, found in steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "exact_layout.h"
#include "fuzz.h"
#include "ir/parse.h"
#include "layout/key_period.h"
#include "parsed_mask.h"
#include "passes/simplify.h"
#include "random_graph.h"

namespace treadle::layout {
namespace {

using test::chance;
using test::random_int;

TEST(KeyPeriod, IsThatOfTheRemaindersOfKeys) {
  const auto period = [](const char* text) { return key_period(mask_of(text).graph, 65536); };
  EXPECT_EQ(period("q >= kv && (q - kv) % 128 == 0"), 128);
  EXPECT_EQ(period("q >= kv && (kv % 128 >= 112 || q // 128 == kv // 128)"), 128);
  EXPECT_EQ(period("kv // 16 % 8 == 0"), 128);
  EXPECT_EQ(period("(kv >> 4 & 7) == 0"), 128);
  EXPECT_EQ(period("kv % 12 == 0 || kv % 8 == 0"), 24);
  EXPECT_EQ(period("q >= kv && q - kv < 100"), 1);
  EXPECT_EQ(period("q % 128 == 5 && q >= kv"), 1);
  EXPECT_EQ(period("kv % 50000 == 0"), 1);  // there is one period and a bit
}

// A class is one run, and so is a dilated window.
TEST(Periods, AreRunsWithSteps) {
  const Extent extent{.queries = 8192, .keys = 8192};
  const Tiles tiles({.kind = Order::Kind::residue, .modulus = 128}, extent.queries, 32);
  const Layout strided = build(mask_of("q >= kv && q - kv >= 128 && (q - kv) % 128 == 0"), extent,
                               tiles, *serial_executor());
  // A period before its first query, a tile sees all keys of the class; later ones in part.
  EXPECT_EQ(to_text(strided.runs(0, 0, 3)[0]), "[1, 3970) step 128 width 1 full");
  EXPECT_EQ(to_text(strided.runs(0, 0, 3)[1]), "[4097, 7938) step 128 width 1 partial");
  EXPECT_EQ(strided.runs(0, 0, 3).size(), 2u);

  const Tiles neighbours({}, extent.queries, 32);
  const Layout fixed = build(mask_of("kv <= q && kv % 128 >= 112 && q // 128 != kv // 128"), extent,
                             neighbours, *serial_executor());
  EXPECT_EQ(fixed.runs(0, 0, 200).size(), 1u);
  EXPECT_EQ(to_text(fixed.runs(0, 0, 200)[0]), "[112, 6400) step 128 width 16 full");

  const Layout dilated =
      build(mask_of("(q - kv) % 8 == 0 && q - kv < 1024 && q >= kv"), extent,
            Tiles({.kind = Order::Kind::residue, .modulus = 8}, 8192, 32), *serial_executor());
  EXPECT_LE(dilated.run_count(), 3 * dilated.tiles().count());
}

// A few comparisons of remainders, blocks and distances, put together at random.
std::string random_text(test::Random& random, int depth) {
  if (depth > 0) {
    const std::string left = random_text(random, depth - 1);
    if (chance(random, 0.2)) return "!(" + left + ")";
    return "(" + left + (chance(random, 0.6) ? " && " : " || ") + random_text(random, depth - 1) +
           ")";
  }
  const std::int64_t n = chance(random, 0.5) ? 16 : random_int(random, 2, 40);
  const char* comparisons[] = {"==", "!=", "<", ">="};
  const std::string than =
      fmt::format("{} {}", comparisons[random_int(random, 0, 3)], random_int(random, 0, n - 1));
  const std::int64_t shift = random_int(random, 0, 50);
  switch (random_int(random, 0, 9)) {
    case 0: return fmt::format("(q - kv) % {} {}", n, than);
    case 1: return fmt::format("(q + kv + {}) % {} {}", shift, n, than);
    case 2: return fmt::format("kv % {} {}", n, than);
    case 3: return fmt::format("((kv + {}) & 15) {}", shift, than);
    case 4: return fmt::format("kv // {} % 3 == 1", random_int(random, 2, 9));
    case 5: return fmt::format("q // {} == kv // {}", n, n);
    case 6: return fmt::format("q - kv < {}", shift * 4);
    case 7: return fmt::format("abs(q % {} - kv % {}) <= 2", n, n);
    case 8: return fmt::format("ids[kv % {}] < q", n);
    default: return fmt::format("q + {} >= kv", shift);
  }
}

TEST(Periods, RandomMasksAreExact) {
  const auto executor = tbb_executor(2);
  for (int round = 0; round < test::fuzz_count(1500); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    const std::string text = random_text(random, static_cast<int>(random_int(random, 0, 2)));
    SCOPED_TRACE(text);
    Tensor ids(DType::i32, {random_int(random, 1, 50)});  // some reads are outside
    for (std::int32_t& id : ids.data<std::int32_t>())
      id = static_cast<std::int32_t>(random_int(random, 0, 300));
    const std::vector<ir::Slot> slots{{"ids", DType::i32, 1}};
    ir::Graph graph = passes::simplify(ir::parse(text, slots));
    std::vector<ConstView> memory;
    if (!graph.slots().empty()) memory.push_back(ids);
    const Mask mask{std::move(graph), memory};
    const auto range = [&](std::int64_t longest) {
      const std::int64_t begin = std::max<std::int64_t>(0, random_int(random, -100, 100));
      return Range{begin, begin + random_int(random, 1, longest)};
    };
    const Extent extent{.queries = range(150), .keys = range(chance(random, 0.2) ? 900 : 300)};
    const std::int64_t modulus = chance(random, 0.5) ? 16 : random_int(random, 2, 40);
    const Order orders[] = {
        {},
        {.kind = Order::Kind::blocks, .modulus = modulus},
        {.kind = Order::Kind::residue, .modulus = modulus},
        {.kind = Order::Kind::rectangle, .modulus = 16, .rows = 2, .columns = 4}};
    const Tiles tiles(orders[random_int(random, 0, 3)], extent.queries, random_int(random, 8, 40));
    expect_exact(mask, extent, tiles, build(mask, extent, tiles, *executor));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace treadle::layout
