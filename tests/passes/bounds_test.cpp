// Bounds never lie, and are tight where masks need them to be.
#include "passes/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "fuzz.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "passes/simplify.h"
#include "random_graph.h"
#include "random_points.h"

namespace treadle::passes {
namespace {

using test::Random;

Box box_of(Axis q, Axis kv) {
  Box box;
  box.q = q;
  box.kv = kv;
  return box;
}

Truth truth(std::string_view text, const Box& box, std::vector<ir::Slot> slots = {},
            std::vector<ConstView> memory = {}) {
  const ir::Graph graph = ir::parse(text, slots);
  std::vector<ConstView> bound;
  for (const ir::Slot& slot : graph.slots()) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].name == slot.name) bound.push_back(memory[i]);
    }
  }
  CaptureTables tables(bound);
  return Bounds(graph, tables).truth(box);
}

TEST(Bounds, DecidesCausalAndWindowsOnRectangles) {
  const Box below = box_of({.low = 96, .count = 48}, {.low = 0, .count = 97});
  const Box above = box_of({.low = 96, .count = 48}, {.low = 144, .count = 100});
  const Box across = box_of({.low = 96, .count = 48}, {.low = 96, .count = 48});
  EXPECT_EQ(truth("q >= kv", below), Truth::always);
  EXPECT_EQ(truth("q >= kv", above), Truth::never);
  EXPECT_EQ(truth("q >= kv", across), Truth::unsure);
  EXPECT_EQ(truth("q - kv < 144", below), Truth::always);
  EXPECT_EQ(truth("abs(q - kv) < 48", across), Truth::always);
  EXPECT_EQ(truth("abs(q - kv) < 47", across), Truth::unsure);
  EXPECT_EQ(truth("2*q - kv >= 95", below), Truth::always);  // 192 - 96
  EXPECT_EQ(truth("q >= kv && q - kv < 10", below), Truth::unsure);
}

TEST(Bounds, CorrelatedValuesStayTight) {
  const Box box = box_of({.low = 10, .count = 20}, {.low = 5, .count = 7});
  EXPECT_EQ(truth("q + kv - q - kv == 0", box), Truth::always);
  EXPECT_EQ(truth("3*q - 2*q - q == 0", box), Truth::always);
}

TEST(Bounds, ResidueClassesMakeModuloExact) {
  const Axis residue{.low = 5, .count = 48, .step = 128};
  EXPECT_EQ(truth("(q - kv) % 128 == 0", box_of(residue, {.low = 5, .count = 1})), Truth::always);
  EXPECT_EQ(truth("(q - kv) % 128 == 0", box_of(residue, {.low = 6, .count = 127})), Truth::never);
  EXPECT_EQ(truth("(q - kv) % 128 == 0", box_of(residue, {.low = 6, .count = 128})), Truth::unsure);
  EXPECT_EQ(truth("q % 64 == 5", box_of(residue, {})), Truth::always);
  EXPECT_EQ(
      truth("q // 128 == kv", box_of({.low = 5, .count = 2, .step = 128}, {.low = 2, .count = 9})),
      Truth::never);
}

TEST(Bounds, BlocksAndGrids) {
  EXPECT_EQ(
      truth("q // 64 == kv // 64", box_of({.low = 64, .count = 64}, {.low = 64, .count = 64})),
      Truth::always);
  EXPECT_EQ(
      truth("q // 64 == kv // 64", box_of({.low = 64, .count = 64}, {.low = 128, .count = 640})),
      Truth::never);
  // A rectangle of 4 rows and 8 columns in a grid of width 32.
  const Axis rectangle{
      .low = 32 * 3 + 8, .count = 8, .step = 1, .outer_count = 4, .outer_step = 32};
  EXPECT_EQ(truth("q % 32 >= 8 && q % 32 < 16", box_of(rectangle, {})), Truth::always);
  EXPECT_EQ(truth("q // 32 >= 3 && q // 32 <= 6", box_of(rectangle, {})), Truth::always);
}

// Some residues of the keys, over many periods.
TEST(Bounds, ResiduesOfKeys) {
  const auto residues = [](std::int64_t low, std::int64_t count) {
    return Axis{.low = 1280 + low, .count = count, .outer_count = 100, .outer_step = 128};
  };
  EXPECT_EQ(truth("kv % 128 >= 112", box_of({}, residues(112, 16))), Truth::always);
  EXPECT_EQ(truth("kv & 127 >= 112", box_of({}, residues(0, 112))), Truth::never);
  EXPECT_EQ(truth("kv % 128 >= 112", box_of({}, residues(111, 2))), Truth::unsure);
  EXPECT_EQ(truth("kv // 128 >= 10 && kv // 128 < 110", box_of({}, residues(0, 128))),
            Truth::always);
  // Queries of one class, and neighbours.
  const char* strided = "(q - kv) % 128 == 0";
  EXPECT_EQ(truth(strided, box_of({.low = 5, .count = 48, .step = 128}, residues(5, 1))),
            Truth::always);
  EXPECT_EQ(truth(strided, box_of({.low = 5, .count = 48, .step = 128}, residues(6, 122))),
            Truth::never);
  EXPECT_EQ(truth(strided, box_of({.low = 0, .count = 48}, residues(48, 80))), Truth::never);
  EXPECT_EQ(truth("q >= kv && (q - kv) % 128 == 0",
                  box_of({.low = 5, .count = 48, .step = 128}, residues(5, 1))),
            Truth::unsure);
}

TEST(Bounds, CapturedArraysAreBoundedByTheirExtremes) {
  std::vector<std::int32_t> ids(1000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i / 100);
  const std::vector<ir::Slot> slots{{"ids", DType::i32, 1}};
  const std::vector<ConstView> memory{ConstView(ids.data(), {1000})};
  const auto at = [&](Axis q, Axis kv) {
    return truth("ids[q] == ids[kv]", box_of(q, kv), slots, memory);
  };
  EXPECT_EQ(at({.low = 100, .count = 100}, {.low = 100, .count = 100}), Truth::always);
  EXPECT_EQ(at({.low = 100, .count = 100}, {.low = 200, .count = 800}), Truth::never);
  EXPECT_EQ(at({.low = 100, .count = 100}, {.low = 150, .count = 100}), Truth::unsure);
  EXPECT_EQ(at({.low = 900, .count = 101}, {.low = 0, .count = 1}),
            Truth::unsure);  // reads outside
  EXPECT_EQ(truth("ids[q] + 1 > ids[kv]",
                  box_of({.low = 0, .count = 100}, {.low = 0, .count = 100}), slots, memory),
            Truth::always);
  EXPECT_EQ(truth("ids[ids[q]] == 0", box_of({.low = 0, .count = 1000}, {}), slots, memory),
            Truth::always);
}

TEST(Bounds, RowsOfMatricesWithAFixedIndex) {
  std::vector<std::int64_t> ids(2 * 300);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int64_t>(i / 300 * 10 + i % 300 / 100);
  const std::vector<ir::Slot> slots{{"ids", DType::i64, 2}};
  const std::vector<ConstView> memory{ConstView(ids.data(), {2, 300})};
  Box box = box_of({.low = 100, .count = 100}, {.low = 100, .count = 100});
  box.b.low = 1;
  EXPECT_EQ(truth("ids[b, q] == ids[b, kv]", box, slots, memory), Truth::always);
  EXPECT_EQ(truth("ids[b, q] == 11", box, slots, memory), Truth::always);
  EXPECT_EQ(truth("ids[b, q] == 1", box, slots, memory), Truth::never);
}

TEST(Bounds, GivesUpWhereIntegersMightWrap) {
  const Box box = box_of({.low = 1, .count = 2}, {});
  EXPECT_EQ(truth("q * 9223372036854775807 > 0", box), Truth::unsure);
  EXPECT_EQ(truth("q + 9223372036854775806 > 0", box), Truth::unsure);
}

TEST(Bounds, NaNMakesComparisonsUnsure) {
  std::vector<float> x{1, 2, std::nanf(""), 4};
  const std::vector<ir::Slot> slots{{"x", DType::f32, 1}};
  const std::vector<ConstView> memory{ConstView(x.data(), {4})};
  EXPECT_EQ(truth("x[q] < 9.0", box_of({.low = 0, .count = 2}, {}), slots, memory), Truth::always);
  EXPECT_EQ(truth("x[q] < 9.0", box_of({.low = 0, .count = 4}, {}), slots, memory), Truth::unsure);
  EXPECT_EQ(truth("isnan(x[q])", box_of({.low = 0, .count = 2}, {}), slots, memory), Truth::never);
}

// NaN is true, and in no interval.
TEST(Bounds, TruthOfNaN) {
  std::vector<float> x{0, 0, std::nanf(""), 0, 3, std::nanf(""), -1};
  const std::vector<ir::Slot> slots{{"x", DType::f32, 1}};
  const std::vector<ConstView> memory{ConstView(x.data(), {7})};
  const auto at = [&](std::int64_t low, std::int64_t count) {
    return truth("bool(x[q])", box_of({.low = low, .count = count}, {}), slots, memory);
  };
  EXPECT_EQ(at(0, 2), Truth::never);
  EXPECT_EQ(at(0, 3), Truth::unsure);
  EXPECT_EQ(at(2, 2), Truth::unsure);
  EXPECT_NE(at(2, 1), Truth::never);
  EXPECT_EQ(at(4, 1), Truth::always);
  EXPECT_EQ(at(4, 2), Truth::always);
  EXPECT_EQ(at(4, 3), Truth::unsure);  // -1 .. 3
}

TEST(Bounds, ArraysOfBools) {
  const bool some[] = {true, true, false, false};
  const std::vector<ir::Slot> slots{{"m", DType::boolean, 1}, {"grid", DType::boolean, 2}};
  const std::vector<ConstView> memory{ConstView(some, {4}), ConstView(some, {2, 2})};
  const auto at = [&](std::string_view text, std::int64_t low, std::int64_t count) {
    return truth(text, box_of({.low = low, .count = count}, {.low = 0, .count = 2}), slots, memory);
  };
  EXPECT_EQ(at("m[q]", 0, 2), Truth::always);
  EXPECT_EQ(at("m[q]", 2, 2), Truth::never);
  EXPECT_EQ(at("m[q]", 1, 2), Truth::unsure);
  EXPECT_EQ(at("m[q]", 2, 3), Truth::unsure);  // reads outside
  // Where nothing is known of an element, it is 0 or 1 all the same.
  EXPECT_EQ(at("grid[q, kv]", 0, 2), Truth::unsure);
  EXPECT_EQ(at("int(grid[q, kv]) <= 1 && int(grid[q, kv]) >= 0", 0, 2), Truth::always);
  EXPECT_EQ(at("int(grid[q, kv]) > 0", 0, 2), Truth::unsure);
}

// What a box of kv is asked about.
struct Question {
  const char* text;
  std::int64_t low, count;
  bool answer;
};

TEST(Bounds, IntegersThatFit32Bits) {
  for (const Question& question : {Question{"kv + 2147483646 > q", 0, 2, true},
                                   {"kv + 2147483646 > q", 0, 3, false},
                                   {"-2147483647 - kv < q", 0, 2, true},
                                   {"-2147483647 - kv < q", 0, 3, false},
                                   // Also in between, and also where nobody looks.
                                   {"(kv * 4294967296) % 2 == 0", 0, 1, false},
                                   {"where(kv >= 0, q, kv + 2147483646) == 0", 0, 3, false},
                                   {"float(kv) * 1e20 > 0.0", 0, 100, true}}) {
    const ir::Graph graph = ir::parse(question.text, {});
    CaptureTables tables({});
    Bounds bounds(graph, tables);
    bounds.evaluate(box_of({}, {.low = question.low, .count = question.count}));
    EXPECT_EQ(bounds.fits_32_bits(), question.answer)
        << question.text << ", " << question.count << " keys";
  }
}

TEST(Bounds, DivisionsThatMeetNoZero) {
  for (const char* text :
       {"q % kv == 0", "q // kv == 0", "q % kv < 0 && q // kv < 0", "kv == 0 || q % kv == 0"}) {
    const ir::Graph graph = ir::parse(text, {});
    CaptureTables tables({});
    Bounds bounds(graph, tables);
    bounds.evaluate(box_of({.low = 3, .count = 9}, {.low = 1, .count = 5}));
    EXPECT_TRUE(bounds.never_poisoned()) << text;
    bounds.evaluate(box_of({.low = 3, .count = 9}, {.low = 0, .count = 5}));
    EXPECT_FALSE(bounds.never_poisoned()) << text;
    EXPECT_TRUE(bounds.reads_inside()) << text;
  }
}

TEST(RangeTable, AgreesWithAScan) {
  const std::uint64_t seed = test::fuzz_seed(3);
  SCOPED_TRACE(test::seed_text(seed));
  Random random = test::rng(seed);
  for (const std::int64_t length : {1, 63, 64, 65, 1000, 4096}) {
    std::vector<std::int16_t> data(static_cast<std::size_t>(2 * length));
    for (auto& x : data) x = static_cast<std::int16_t>(test::random_int(random, -999, 999));
    const RangeTable table(ConstView(data.data() + 2 * (length - 1), {length}, {-2}));
    for (int i = 0; i < 300; ++i) {
      const std::int64_t first = test::random_int(random, 0, length - 1);
      const std::int64_t last = test::random_int(random, first, length - 1);
      std::int64_t low = 9999;
      std::int64_t high = -9999;
      for (std::int64_t at = first; at <= last; ++at) {
        const std::int64_t x = data[static_cast<std::size_t>(2 * (length - 1 - at))];
        low = std::min(low, x);
        high = std::max(high, x);
      }
      EXPECT_EQ(table.integers(first, last).low, low);
      EXPECT_EQ(table.integers(first, last).high, high);
    }
  }
}

Axis random_axis(Random& random, std::int64_t longest) {
  Axis axis{.low = test::random_int(random, 0, longest - 1),
            .count = test::random_int(random, 1, 6)};
  if (test::chance(random, 0.3)) axis.step = test::random_int(random, 1, 5);
  return axis;
}

// Every sampled value of every node lies in its bound, in fp32 and in fp64.
template <class F>
void expect_sound(Random& random, const ir::Graph& outputs_only) {
  // All nodes become outputs, so that a wrong bound is found where it arises.
  std::vector<ir::NodeId> all(static_cast<std::size_t>(outputs_only.size()));
  std::iota(all.begin(), all.end(), 0);
  const ir::Graph graph({outputs_only.nodes().begin(), outputs_only.nodes().end()},
                        {outputs_only.slots().begin(), outputs_only.slots().end()}, all);
  const test::Captures memory = test::random_captures(random, graph);
  CaptureTables tables(memory.views);
  Bounds bounds(graph, tables);
  for (int boxes = 0; boxes < 3; ++boxes) {
    Box box;
    box.b = {.low = test::random_int(random, 0, 2)};
    box.h = {.low = test::random_int(random, 0, 2), .count = test::random_int(random, 1, 2)};
    box.q = random_axis(random, 8);
    box.kv = random_axis(random, 8);
    for (Axis* axis : {&box.q, &box.kv}) {
      if (!test::chance(random, 0.2)) continue;
      axis->outer_count = test::random_int(random, 1, 3);
      axis->outer_step = test::random_int(random, 1, 9);
    }
    bounds.evaluate(box);
    test::RandomPoints<F> points = test::random_points<F>(random, 24);
    for (std::size_t i = 0; i < 24; ++i) {
      const auto pick = [&](const Axis& axis) {
        return axis.low + axis.step * test::random_int(random, 0, axis.count - 1) +
               axis.outer_step * test::random_int(random, 0, axis.outer_count - 1);
      };
      points.b[i] = pick(box.b);
      points.h[i] = pick(box.h);
      points.q[i] = pick(box.q);
      points.kv[i] = pick(box.kv);
    }
    ir::Interpreter<F> run(graph, memory.views);
    run(points.points(), points.count());
    for (int node = 0; node < graph.size(); ++node) {
      const Bound& bound = bounds.output(node);
      for (std::size_t i = 0; i < 24; ++i) {
        const auto where = [&] { return ir::to_listing(graph) + "node %" + std::to_string(node); };
        if (!run.poison(node).empty() && run.poison(node)[i] != 0) {
          ASSERT_TRUE(bound.may_be_poison) << where();
          continue;
        }
        switch (graph[node].type) {
          case ir::Type::real:
            ASSERT_TRUE(bound.real.contains(static_cast<double>(run.reals(node)[i])))
                << run.reals(node)[i] << " not in " << bound.real.low << " .. " << bound.real.high
                << "\n"
                << where();
            break;
          case ir::Type::integer:
            ASSERT_TRUE(bound.integer.contains(run.integers(node)[i]))
                << run.integers(node)[i] << " not in " << bound.integer.low << " .. "
                << bound.integer.high << " mod " << bound.integer.modulus << "\n"
                << where();
            break;
          case ir::Type::boolean:
            ASSERT_TRUE(run.booleans(node)[i] != 0 ? bound.may_be_true : bound.may_be_false)
                << where();
            break;
        }
      }
    }
  }
}

TEST(Bounds, AreSoundOnRandomGraphs) {
  for (int round = 0; round < test::fuzz_count(51000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    Random random = test::rng(seed);
    test::GraphOptions options;
    if (seed % 2 == 1) options = test::mask_options();
    options.special_constants = seed % 4 < 2;
    options.operations = static_cast<int>(3 + seed % 14);
    const ir::Graph graph = test::random_graph(random, options);
    if (seed % 3 == 0) {
      expect_sound<float>(random, graph);
    } else {
      expect_sound<double>(random, graph);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace treadle::passes
