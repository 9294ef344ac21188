// A value per node, also where the value is a bool.
#include "ir/per_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ir/parse.h"

namespace treadle::ir {
namespace {

using ::testing::ElementsAre;

TEST(PerNode, HasOneElementPerNode) {
  const Graph graph = parse("score * 2.0 + score", {});
  PerNode<std::string> names(graph.size());
  EXPECT_EQ(names.size(), graph.size());
  names[graph.output()] = "out";
  EXPECT_EQ(names[graph.output()], "out");
  EXPECT_EQ(names[0], "");
  EXPECT_THAT(PerNode<int>(3, 7).values(), ElementsAre(7, 7, 7));
}

// score, 2.0, score * 2.0, q, float(q), their sum.
TEST(PerNode, OfBoolsIsReadAndWrittenInPlace) {
  const Graph graph = parse("score * 2.0 + float(q)", {});
  PerNode<bool> uses_score(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    uses_score[id] = node.op == Op::input && node.input == Input::score;
    for (const NodeId operand : node.operands)
      uses_score[id] = uses_score[id] || uses_score[operand];
  }
  const PerNode<bool>& read = uses_score;
  EXPECT_TRUE(read[graph.output()]);
  EXPECT_THAT(uses_score.values(), ElementsAre(true, false, true, false, false, true));
  PerNode<bool> same = uses_score;
  EXPECT_EQ(same, uses_score);
  same[1] = true;
  EXPECT_NE(same, uses_score);
}

TEST(PerNode, GrowsAndHoldsWhatCannotBeCopied) {
  PerNode<std::unique_ptr<int>> owned;
  owned.push_back(std::make_unique<int>(1));
  owned.push_back(std::make_unique<int>(2));
  EXPECT_EQ(owned.size(), 2);
  EXPECT_EQ(*owned[1], 2);
}

}  // namespace
}  // namespace treadle::ir
