// The canonical order, identity and hash of graphs.
#include "ir/graph.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "fuzz.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "random_graph.h"

namespace treadle::ir {
namespace {

const std::vector<Slot> graph_captures{{"slopes", DType::f32, 1}, {"limit", DType::i64, 0}};

Graph alibi() {
  return parse("where(q >= kv && q - kv < limit, score + slopes[h] * (kv - q), -inf)",
               graph_captures);
}

TEST(Graph, TheOrderDoesNotDependOnTheOrderOfBuilding) {
  Builder forwards;
  const NodeId q = forwards.input(Input::q);
  const NodeId kv = forwards.input(Input::kv);
  const NodeId limit = forwards.load(graph_captures[1], {});
  const NodeId slope = forwards.load(graph_captures[0], {q});
  const Graph one = forwards.finish({forwards(
      Op::where, forwards(Op::lt, forwards(Op::sub, q, kv), limit), slope, forwards.real(1))});

  Builder backwards;
  backwards.load({"unused", DType::f64, 0}, {});
  backwards(Op::exp, backwards.real(3));
  const NodeId number = backwards.real(1);
  const NodeId slope_again = backwards.load(graph_captures[0], {backwards.input(Input::q)});
  const NodeId limit_again = backwards.load(graph_captures[1], {});
  const NodeId kv_again = backwards.input(Input::kv);
  const NodeId difference = backwards(Op::sub, backwards.input(Input::q), kv_again);
  const Graph other = backwards.finish(
      {backwards(Op::where, backwards(Op::lt, difference, limit_again), slope_again, number)});

  EXPECT_EQ(one, other);
  EXPECT_EQ(one.hash(), other.hash());
  EXPECT_EQ(one.slots()[0].name, "limit");
  EXPECT_EQ(one.slots()[1].name, "slopes");
}

TEST(Graph, UnusedNodesAndSlotsAreDropped) {
  Builder make;
  make.load(graph_captures[0], {make.input(Input::h)});
  const NodeId q = make.input(Input::q);
  make(Op::neg, q);
  const Graph graph = make.finish({q});
  EXPECT_EQ(graph.size(), 1);
  EXPECT_TRUE(graph.slots().empty());
}

TEST(Graph, OutputsKeepTheirOrderAndMayRepeat) {
  Builder make;
  const NodeId q = make.input(Input::q);
  const NodeId kv = make.input(Input::kv);
  const Graph graph = make.finish({kv, q, kv});
  EXPECT_EQ(to_text(graph), "kv, q, kv");
  EXPECT_EQ(graph.outputs()[0], graph.outputs()[2]);
  EXPECT_NE(graph, make.finish({q, kv, q}));
  EXPECT_NE(graph.hash(), make.finish({q, kv, q}).hash());
}

TEST(Graph, AnswersQuestions) {
  const Graph graph = alibi();
  EXPECT_TRUE(graph.uses(Input::score));
  EXPECT_TRUE(graph.uses(Input::kv));
  EXPECT_FALSE(graph.uses(Input::b));
  EXPECT_FALSE(graph.uses(Input::grad));
  EXPECT_EQ(graph.find_slot("slopes")->rank, 1);
  EXPECT_EQ(graph.find_slot("slope"), nullptr);
  EXPECT_EQ(graph.output_type(), Type::real);
}

// Kernels on disk are named by this hash: when it changes, every cache is cold. If that is wanted,
// write the new value here.
TEST(Graph, TheHashIsTheSameInEveryVersion) {
  EXPECT_EQ(to_string(alibi().hash()), "1c665b4a475be1f503b308375c8247d9");
  EXPECT_EQ(to_string(parse("score", {}).hash()), "a503ae3c306a0f475b31bb9138325297");
}

TEST(Graph, TheHashSeesEveryPart) {
  const Graph graph = alibi();
  const std::vector<Slot> wide{{"slopes", DType::f64, 1}, graph_captures[1]};
  const std::vector<Slot> renamed{{"slope", DType::f32, 1}, graph_captures[1]};
  const char* const text = "where(q >= kv && q - kv < limit, score + slopes[h] * (kv - q), -inf)";
  EXPECT_NE(parse(text, wide).hash(), graph.hash());
  EXPECT_NE(
      parse("where(q >= kv && q - kv < limit, score + slope[h] * (kv - q), -inf)", renamed).hash(),
      graph.hash());
  EXPECT_NE(
      parse("where(q >= kv && q - kv < limit, score + slopes[b] * (kv - q), -inf)", graph_captures)
          .hash(),
      graph.hash());
  EXPECT_NE(
      parse("where(q >= kv && q - kv < limit, score + slopes[h] * (kv - q), inf)", graph_captures)
          .hash(),
      graph.hash());
  EXPECT_NE(parse("1", {}).hash(), parse("1.0", {}).hash());
  EXPECT_NE(parse("0.0", {}).hash(), parse("-0.0", {}).hash());
  EXPECT_EQ(parse("nan", {}).hash(), parse("nan", {}).hash());
}

// Copying node by node, with rubbish made in between, ends at the identical graph.
TEST(Graph, RandomGraphsAreCanonical) {
  for (int round = 0; round < test::fuzz_count(2000); ++round) {
    const std::uint64_t seed = test::fuzz_seed(round);
    SCOPED_TRACE(test::seed_text(seed));
    test::Random random = test::rng(seed);
    const Graph graph = test::random_graph(random, {.outputs = 2, .operations = 40});
    verify(graph);
    Builder make;
    PerNode<NodeId> to;
    for (NodeId id = 0; id < graph.size(); ++id) {
      make(Op::add, make.integer(id), make.input(test::one_of(random, all_inputs)));
      to.push_back(make.copy(graph, id, to));
    }
    const Graph copy = make.finish({to[graph.output(0)], to[graph.output(1)]});
    ASSERT_EQ(copy, graph) << to_text(graph);
    ASSERT_EQ(copy.hash(), graph.hash());
  }
}

// Deep graphs are built, printed, read, verified and hashed without recursion and in linear time.
TEST(Graph, AHundredThousandLevels) {
  Builder make;
  NodeId left = make.input(Input::score);
  NodeId right = left;
  for (int i = 0; i < 100'000; ++i) {
    left = make(i % 3 == 0 ? Op::sin : Op::neg, left);
    right = make(Op::pow, make.input(Input::score), right);
  }
  const Graph graph = make.finish({left, right});
  EXPECT_EQ(graph.size(), 200'001);
  verify(graph);
  const Graph again = parse(to_text(graph), {});
  EXPECT_TRUE(again == graph);
  EXPECT_EQ(again.hash(), graph.hash());
}

}  // namespace
}  // namespace treadle::ir
