// What is known of a call's mod: proofs hold at every point, and what is easy is proven.
#include "plan/mod_facts.h"

#include <gtest/gtest.h>

#include "fuzz.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "random_graph.h"
#include "random_points.h"
#include "treadle/tensor.h"

namespace treadle::plan {
namespace {

using layout::Extent;
using layout::Order;

class Facts : public testing::Test {
 protected:
  Tensor table{DType::f32, {4, 100}};
  Tensor ids{DType::i32, {100}};
  std::vector<ir::Slot> slots{{"table", DType::f32, 2}, {"ids", DType::i32, 1}};

  [[nodiscard]] ModFacts of(std::string_view text, const Extent& extent = {2, 4, 100, 100},
                            const Order& order = {}) const {
    const ir::Graph graph = ir::parse(text, slots);
    std::vector<ConstView> memory;
    for (const ir::Slot& slot : graph.slots())
      memory.push_back(slot.name == "table" ? ConstView(table) : ConstView(ids));
    return find_facts(graph, memory, extent, order);
  }
};

TEST_F(Facts, NoReadsNoChecks) {
  EXPECT_EQ(of("score * 2.0").reads, Reads::proven);
  EXPECT_EQ(of("q >= kv").reads, Reads::proven);
  EXPECT_EQ(of("q // 3 == kv % 5").reads, Reads::proven);
}

TEST_F(Facts, ReadsInRange) {
  EXPECT_EQ(of("score + table[h, q]").reads, Reads::proven);
  EXPECT_EQ(of("score + table[h, clamp(q - kv, -50, 49) + 50]").reads, Reads::proven);
  EXPECT_EQ(of("ids[q] == ids[kv]").reads, Reads::proven);
  EXPECT_EQ(of("score + table[q % 4, kv]").reads, Reads::proven);
}

TEST_F(Facts, ReadsThatMayLeave) {
  EXPECT_EQ(of("score + table[h, q + 1]").reads, Reads::checked);
  EXPECT_EQ(of("score + table[h, q - kv]").reads, Reads::checked);
  EXPECT_EQ(of("score + table[b, kv]", {5, 4, 100, 100}).reads, Reads::checked);
  EXPECT_EQ(of("ids[q] == 0", {1, 1, 101, 1}).reads, Reads::checked);
  EXPECT_EQ(of("ids[q] == 0", {1, 1, 100, 1000}).reads, Reads::proven);
}

TEST_F(Facts, DivisorsThatMayBeZero) {
  EXPECT_EQ(of("q // kv == 1").reads, Reads::checked);
  EXPECT_EQ(of("q // (kv + 1) == 1").reads, Reads::proven);
}

// What integer captures hold is looked at where it decides.
TEST_F(Facts, IndicesFromCaptures) {
  for (std::int32_t& id : ids.data<std::int32_t>()) id = 3;
  EXPECT_EQ(of("score + table[ids[q], kv]").reads, Reads::clamped);
  ids.at<std::int32_t>({57}) = 4;
  EXPECT_EQ(of("score + table[ids[q], kv]").reads, Reads::checked);
  EXPECT_EQ(of("score + table[ids[q], kv]", {1, 1, 57, 100}).reads, Reads::clamped);
  ids.at<std::int32_t>({57}) = -1;
  EXPECT_EQ(of("score + table[ids[q], kv]").reads, Reads::checked);
}

// A finder forgets what captures held before.
TEST_F(Facts, FoundAgain) {
  const ir::Graph graph = ir::parse("score + table[ids[q], kv]", slots);
  std::vector<ConstView> memory;
  for (const ir::Slot& slot : graph.slots())
    memory.push_back(slot.name == "table" ? ConstView(table) : ConstView(ids));
  FactFinder finder(graph);
  for (const std::int32_t id : {3, 4, 0, -1, 2}) {
    ids.at<std::int32_t>({57}) = id;
    for (const std::int64_t queries : {100, 57, 58}) {
      const Extent extent{1, 4, queries, 100};
      EXPECT_EQ(finder.find(memory, extent, {}), find_facts(graph, memory, extent, {}));
      EXPECT_EQ(finder.find(memory, extent, {}).reads,
                queries > 57 && (id < 0 || id > 3) ? Reads::checked : Reads::clamped);
    }
  }
}

// What holds whatever captures hold needs no clamp, index by index.
TEST_F(Facts, ClampsOnlyWhatContentsDecided) {
  for (std::int32_t& id : ids.data<std::int32_t>()) id = 3;
  const auto clamps = [&](std::string_view text) {
    const ModFacts facts = of(text);
    EXPECT_EQ(facts.reads, Reads::clamped) << text;
    return facts.clamp;
  };
  EXPECT_EQ(clamps("score + table[ids[q], kv]"), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(clamps("score + table[h, ids[kv] + q % 90] + table[h, q]"),
            (std::vector<bool>{false, false, true, false, false}));
  EXPECT_EQ(of("score + table[ids[q] % 4, clamp(ids[kv], 0, 99)]").reads, Reads::proven);
  // The sum may be 2^31, which 32 bits do not hold: there the quotient is negative.
  EXPECT_EQ(clamps("score + table[h, (max(ids[q], 0) + 1) // 1073741824]"),
            (std::vector<bool>{false, false, true}));
}

TEST_F(Facts, ThirtyTwoBits) {
  EXPECT_TRUE(of("q - kv > 5").narrow);
  EXPECT_TRUE(of("q * 30000 > kv", {1, 1, 70000, 10}).narrow);
  EXPECT_FALSE(of("q * 40000 > kv", {1, 1, 70000, 10}).narrow);
  EXPECT_FALSE(of("q * kv > 5", {1, 1, 50000, 50000}).narrow);
  EXPECT_TRUE(of("q * kv > 5", {1, 1, 40000, 50000}).narrow);
}

TEST_F(Facts, NeighbouringQueries) {
  using Kind = Order::Kind;
  EXPECT_TRUE(of("q >= kv").consecutive);
  EXPECT_TRUE(of("q >= kv", {1, 1, 9, 9}, {.kind = Kind::blocks, .modulus = 4}).consecutive);
  EXPECT_FALSE(of("q >= kv", {1, 1, 9, 9}, {.kind = Kind::residue, .modulus = 4}).consecutive);
  EXPECT_FALSE(
      of("q >= kv", {1, 1, 9, 9}, {.kind = Kind::rectangle, .modulus = 3, .rows = 2, .columns = 2})
          .consecutive);
}

TEST_F(Facts, StridesOfCaptures) {
  const ir::Graph graph = ir::parse("score + table[h, q] + float(ids[kv])", slots);
  const ConstView turned(ConstView(table).data(), DType::f32, {4, 100}, {1, 4});
  const ModFacts facts = find_facts(graph, {turned, ids}, {1, 4, 100, 100}, {});
  EXPECT_EQ(facts.unit_stride, (std::vector<bool>{false, true}));
}

TEST_F(Facts, HashTellsThemApart) {
  const ModFacts facts = of("score + table[h, q]");
  ModFacts other = facts;
  EXPECT_EQ(hash(facts), hash(other));
  other.narrow = !other.narrow;
  EXPECT_NE(hash(facts), hash(other));
  other = facts;
  other.unit_stride.set(0, false);
  EXPECT_NE(hash(facts), hash(other));
  other = facts;
  other.clamp.push_back(true);
  EXPECT_NE(hash(facts), hash(other));
  other = facts;
  other.reads = Reads::clamped;
  EXPECT_NE(hash(facts), hash(other));
}

// Where no checks are needed, no point of the call is poisoned.
TEST(FactsFuzz, UncheckedIsNeverPoisoned) {
  int proven = 0;
  for (int round = 0; round < test::fuzz_count(300); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    test::GraphOptions options = test::mask_options();
    options.operations = static_cast<int>(test::random_int(random, 1, 10));
    const ir::Graph graph = test::random_graph(random, options);
    const test::Captures captures = test::random_captures(random, graph, {.longest = 30});
    const Extent extent{2, 3, test::random_int(random, 1, 12), test::random_int(random, 1, 12)};
    if (find_facts(graph, captures.views, extent, {}).reads == Reads::checked) continue;
    ++proven;
    ir::Interpreter<double> run(graph, captures.views);
    for (std::int64_t b = 0; b < extent.batch; ++b) {
      for (std::int64_t h = 0; h < extent.heads; ++h) {
        for (std::int64_t q = 0; q < extent.queries.count(); ++q) {
          std::vector<std::int64_t> keys;
          for (std::int64_t kv = 0; kv < extent.keys.count(); ++kv) keys.push_back(kv);
          run({.b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = keys}, extent.keys.count());
          for (const auto bit : run.poison(0)) ASSERT_EQ(bit, 0);
        }
      }
    }
  }
  EXPECT_GE(proven, test::fuzz_at_least(200));
}

}  // namespace
}  // namespace treadle::plan
