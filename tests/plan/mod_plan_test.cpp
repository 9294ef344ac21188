// How often the nodes of a mod are computed, how its captures are read, and what is left out.
#include "plan/mod_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ir/parse.h"
#include "passes/derive.h"

namespace treadle::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<ir::Slot> slots{{"slope", DType::f32, 1},
                                  {"bias", DType::f32, 3},
                                  {"table", DType::f32, 1},
                                  {"doc", DType::i32, 1}};

ir::Graph graph_of(const std::string& text) { return ir::parse(text, slots); }

// Facts under which every form of reading is allowed.
ModFacts free_facts(const ir::Graph& graph) {
  return {.narrow = true,
          .reads = Reads::proven,
          .consecutive = true,
          .unit_stride = std::vector<bool>(graph.slots().size(), true)};
}

ModPlan plan_of(const std::string& text) {
  const ir::Graph graph = graph_of(text);
  return plan_mod(graph, free_facts(graph));
}

Level level_of_output(const std::string& text) {
  const ModPlan plan = plan_of(text);
  return plan.level[plan.graph.output()];
}

TEST(Levels, SayHowOftenANodeIsComputed) {
  EXPECT_EQ(level_of_output("slope[h] * 2 + b"), Level::head);
  EXPECT_EQ(level_of_output("doc[q] + h"), Level::queries);
  EXPECT_EQ(level_of_output("doc[kv] + h"), Level::key);
  EXPECT_EQ(level_of_output("doc[q] == doc[kv]"), Level::pair);
  EXPECT_EQ(level_of_output("score * slope[h]"), Level::pair);
}

TEST(Levels, FollowFromDependences) {
  const ModPlan plan = plan_of("score + slope[h] * float(kv - q)");
  for (ir::NodeId id = 0; id < plan.graph.size(); ++id) {
    EXPECT_EQ(plan.level[id], level_of(plan.on[id]));
    for (const ir::NodeId operand : plan.graph[id].operands) {
      EXPECT_GE(plan.on[id].q, plan.on[operand].q);
      EXPECT_GE(plan.on[id].kv, plan.on[operand].kv);
      EXPECT_GE(plan.on[id].score, plan.on[operand].score);
    }
  }
}

std::optional<std::int64_t> coefficient_of(const std::string& text, ir::Input input) {
  const ir::Graph graph = graph_of(text);
  return coefficients(graph, input)[graph.output()];
}

TEST(Coefficients, AreKnownOfSumsDifferencesAndConstantFactors) {
  EXPECT_EQ(coefficient_of("3 * q - (kv - q) + 7", ir::Input::q), 4);
  EXPECT_EQ(coefficient_of("3 * q - (kv - q) + 7", ir::Input::kv), -1);
  EXPECT_EQ(coefficient_of("doc[kv] + q", ir::Input::q), 1);
  EXPECT_EQ(coefficient_of("doc[kv] + q", ir::Input::kv), std::nullopt);
  EXPECT_EQ(coefficient_of("h * q", ir::Input::q), std::nullopt);
  EXPECT_EQ(coefficient_of("abs(q)", ir::Input::q), std::nullopt);
  EXPECT_EQ(coefficient_of("q * 1000000 * 1000000 * 1000000", ir::Input::q), std::nullopt);
  EXPECT_EQ(coefficient_of("h", ir::Input::q), 0);
}

ReadForm form_of(const std::string& text) {
  const ModPlan plan = plan_of(text);
  return plan.read[plan.graph.output()];
}

TEST(ReadForms, OneLoadForAllLanesWherePossible) {
  EXPECT_EQ(form_of("doc[kv]"), ReadForm::uniform);
  EXPECT_EQ(form_of("table[q + 3]"), ReadForm::lanes);
  EXPECT_EQ(form_of("bias[h, kv, q]"), ReadForm::lanes);
  EXPECT_EQ(form_of("table[kv - q + 100]"), ReadForm::backwards);
  EXPECT_EQ(form_of("bias[h, q, kv]"), ReadForm::staged);
  EXPECT_EQ(form_of("table[doc[q]]"), ReadForm::gather);
  EXPECT_EQ(form_of("table[2 * q]"), ReadForm::gather);
}

TEST(ReadForms, AreGathersWhereReadsAreChecked) {
  const ir::Graph graph = graph_of("bias[h, q, kv] + slope[q] + slope[kv]");
  ModFacts facts = free_facts(graph);
  facts.reads = Reads::checked;
  const ModPlan plan = plan_mod(graph, facts);
  int reads = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    if (graph[id].op != ir::Op::load) continue;
    ++reads;
    EXPECT_EQ(plan.read[id], plan.on[id].q ? ReadForm::gather : ReadForm::uniform);
  }
  EXPECT_EQ(reads, 3);
  EXPECT_THAT(plan.staged, IsEmpty());
  EXPECT_FALSE(plan.reads_lanes());
}

TEST(ReadForms, NeedConsecutiveQueriesOrUnitStrides) {
  const ir::Graph graph = graph_of("table[q]");
  ModFacts facts = free_facts(graph);
  facts.consecutive = false;
  EXPECT_EQ(plan_mod(graph, facts).read[graph.output()], ReadForm::gather);
  facts = free_facts(graph);
  facts.unit_stride = {false};
  EXPECT_EQ(plan_mod(graph, facts).read[graph.output()], ReadForm::gather);
}

std::vector<bool> separable(const std::string& text, const std::string& gradient) {
  const ir::Joint joint = passes::derive(graph_of(text), {gradient});
  return plan_mod(joint.graph, free_facts(joint.graph), joint.contributions).separable;
}

// The nodes that are not computed, in their order.
std::vector<ir::NodeId> unwanted(const ModPlan& plan) {
  std::vector<ir::NodeId> nodes;
  for (ir::NodeId id = 0; id < plan.graph.size(); ++id)
    if (!plan.wanted[id]) nodes.push_back(id);
  return nodes;
}

bool is_input(const ModPlan& plan, ir::NodeId id, ir::Input input) {
  return plan.graph[id].op == ir::Op::input && plan.graph[id].input == input;
}

TEST(Wanted, IsEverythingWithoutReads) {
  EXPECT_THAT(unwanted(plan_of("score * 2.0 + float(q % 3 - kv)")), IsEmpty());
}

TEST(Wanted, LeavesOutIndicesThatTheReadTakesApart) {
  const ModPlan plan = plan_of("score + table[q + h * 2]");
  // q and the sum; the read starts from the first lane's q. h * 2 stays.
  const std::vector<ir::NodeId> out = unwanted(plan);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_TRUE(is_input(plan, out[0], ir::Input::q));
  EXPECT_EQ(plan.graph[out[1]].op, ir::Op::add);
}

TEST(Wanted, KeepsAnIndexThatSomethingElseNeeds) {
  EXPECT_THAT(unwanted(plan_of("score + table[q + h * 2] * float(q + h * 2)")), IsEmpty());
}

TEST(Wanted, LeavesOutKvOfStagedReadsAlone) {
  const ModPlan plan = plan_of("score + bias[h, q, kv]");
  const std::vector<ir::NodeId> out = unwanted(plan);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_TRUE(is_input(plan, out[0], ir::Input::kv));
}

TEST(Wanted, IsTheWholeIndexOfAGather) {
  EXPECT_THAT(unwanted(plan_of("score + table[(q * 3 + kv) % 7]")), IsEmpty());
}

// A graph of 80 nodes that has 3^40 paths.
TEST(Wanted, LooksAtSharedPartsOnce) {
  std::string text = "a0 = q - kv + 1000;";
  for (int i = 0; i < 40; ++i) {
    const std::string last = "a" + std::to_string(i);
    text += "a" + std::to_string(i + 1) + " = " + last + " + " + last + " - " + last + ";";
  }
  for (const char* read : {"score + table[a40]", "score + bias[h, q, 2 * kv + a40 - q + 7]"}) {
    const ModPlan plan = plan_of(text + read);
    const auto count = [](const ir::PerNode<bool>& nodes) {
      return std::ranges::count(nodes.values(), true);
    };
    EXPECT_EQ(count(plan.at_first_query) + count(plan.at_first_key) > 80, true) << read;
    EXPECT_THAT(separable(text + "score + table[a40]", "table"), ElementsAre(true));
  }
}

TEST(Staged, AreOnlySoMany) {
  std::string text = "score";
  for (int i = 0; i < most_staged + 10; ++i) text += " + bias[" + std::to_string(i) + ", q, kv]";
  const ModPlan plan = plan_of(text);
  EXPECT_EQ(plan.staged.size(), static_cast<std::size_t>(most_staged));
  EXPECT_EQ(staged_bytes(plan), 4 * most_staged);
  EXPECT_EQ(most_scratch_of(plan.graph, 16).staged, staged_bytes(plan));
}

TEST(Staged, ListsItsLoadsOnceEach) {
  const ModPlan plan =
      plan_of("score + bias[h, q, kv] + bias[0, q, kv + 1] * slope[h] + bias[h, q, kv]");
  ASSERT_EQ(plan.staged.size(), 2U);
  for (std::size_t number = 0; number < plan.staged.size(); ++number) {
    const ir::NodeId load = plan.staged[number];
    EXPECT_EQ(plan.graph[load].op, ir::Op::load);
    EXPECT_EQ(plan.read[load], ReadForm::staged);
    EXPECT_EQ(plan.staged_number[load], static_cast<std::int32_t>(number));
  }
  EXPECT_NE(plan.staged[0], plan.staged[1]);
  EXPECT_FALSE(plan.reads_lanes());
}

TEST(ReadsLanes, OfEitherDirection) {
  EXPECT_TRUE(plan_of("score + table[q]").reads_lanes());
  EXPECT_TRUE(plan_of("score + table[kv - q + 9]").reads_lanes());
  EXPECT_FALSE(plan_of("score + table[kv]").reads_lanes());
}

TEST(Separable, OffsetsThatAreAQuerysPlusAKeys) {
  EXPECT_THAT(separable("score + bias[h, q, kv]", "bias"), ElementsAre(true));
  EXPECT_THAT(separable("score * slope[h]", "slope"), ElementsAre(true));
  EXPECT_THAT(separable("score + table[q - kv + 50]", "table"), ElementsAre(true));
  EXPECT_THAT(separable("score + table[h * (q - kv) + doc[q]]", "table"), ElementsAre(true));
  EXPECT_THAT(separable("score + table[-(q - doc[kv])]", "table"), ElementsAre(true));
}

TEST(Separable, NotWhereQueryAndKeyMeetInAnotherOperation) {
  EXPECT_THAT(separable("score + table[doc[q - kv + 50]]", "table"), ElementsAre(false));
  EXPECT_THAT(separable("score + table[q * kv]", "table"), ElementsAre(false));
  EXPECT_THAT(separable("score + table[abs(q - kv)]", "table"), ElementsAre(false));
  EXPECT_THAT(separable("score + table[int(score)]", "table"), ElementsAre(false));
}

TEST(Separable, EachContributionForItself) {
  EXPECT_THAT(separable("score + table[q] * table[abs(q - kv)]", "table"),
              testing::UnorderedElementsAre(true, false));
}

TEST(Separable, OfAMaskOrAScoreModThereIsNothingToSay) {
  EXPECT_THAT(plan_of("q >= kv").separable, IsEmpty());
}

}  // namespace
}  // namespace treadle::plan
