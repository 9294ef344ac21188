// Where a large mod is cut, and what its pieces keep for one another.
#include "plan/mod_pieces.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ir/parse.h"
#include "plan/mod_plan.h"
#include "plan/tile_plan.h"

namespace treadle::plan {
namespace {

using ir::NodeId;

const std::vector<ir::Slot> piece_slots{{"t", DType::f32, 1}, {"u", DType::f32, 2}};

ir::Graph terms(int n) {
  std::string text = "score";
  for (int i = 0; i < n; ++i) {
    text += fmt::format(" + {}.5 * float(q - {} * kv) + t[kv + {}] * u[kv, q + {}]", i, i, i, i);
  }
  return ir::parse(text, piece_slots);
}

ModPlan cut_plan(const ir::Graph& graph, const PieceSize& size) {
  return plan_mod(graph, {}, {}, size);
}

TEST(Pieces, OnlyOfLargeMods) {
  const ir::Graph graph = terms(4);
  EXPECT_EQ(weight_of(graph), graph.size() + 4 * 8);
  EXPECT_TRUE(cut_plan(graph, {.whole = weight_of(graph)}).pieces.whole());
  EXPECT_FALSE(cut_plan(graph, {.whole = weight_of(graph) - 1}).pieces.whole());
  EXPECT_TRUE(plan_mod(graph, {}).pieces.whole());
  EXPECT_FALSE(plan_mod(terms(100), {}).pieces.whole());
}

TEST(Pieces, HoldNodesOfOneLevelAndNotTooMany) {
  const ir::Graph graph = terms(20);
  for (const std::int32_t most : {1, 2, 7, 50, 100000}) {
    const ModPlan plan = cut_plan(graph, {.whole = 0, .piece = most});
    std::map<std::int32_t, int> size;
    std::map<std::int32_t, std::set<Level>> levels;
    for (NodeId id = 0; id < graph.size(); ++id) {
      const bool given = graph[id].op == ir::Op::input || graph[id].op == ir::Op::constant;
      EXPECT_EQ(plan.pieces.piece[id] < 0, given);
      if (given) continue;
      ++size[plan.pieces.piece[id]];
      levels[plan.pieces.piece[id]].insert(plan.level[id]);
    }
    EXPECT_EQ(static_cast<int>(size.size()), plan.pieces.count);
    for (const auto& [piece, nodes] : size) {
      EXPECT_LE(nodes, most);
      EXPECT_EQ(levels[piece].size(), 1U);
    }
  }
}

TEST(Pieces, KeepWhatOthersUse) {
  const ir::Graph graph = terms(20);
  for (const std::int32_t most : {1, 7, 50}) {
    const ModPlan plan = cut_plan(graph, {.whole = 0, .piece = most});
    const ModPieces& pieces = plan.pieces;
    std::array<std::set<std::int32_t>, areas> taken;
    for (NodeId id = 0; id < graph.size(); ++id) {
      const auto area = static_cast<std::size_t>(area_of(plan.level[id]));
      for (const std::int32_t place : {pieces.place[id], pieces.first_place[id]}) {
        if (place < 0) continue;
        EXPECT_LT(place, pieces.places[area]);
        EXPECT_TRUE(taken[area].insert(place).second) << "two values in one place";
      }
      for (const NodeId operand : graph[id].operands) {
        if (graph[operand].op == ir::Op::constant) continue;
        EXPECT_TRUE(pieces.piece[operand] == pieces.piece[id] || pieces.place[operand] >= 0);
      }
    }
    EXPECT_GE(pieces.place[graph.output()], 0);
  }
}

// What is known of a call does not change the frame, whose size is asked for without a call.
TEST(Pieces, AreTheSameInEveryCall) {
  const ir::Graph graph = terms(100);
  const ModFacts free{
      .narrow = true, .reads = Reads::proven, .consecutive = true, .unit_stride = {true, true}};
  const ModPieces a = plan_mod(graph, {}).pieces, b = plan_mod(graph, free).pieces;
  EXPECT_EQ(a.piece, b.piece);
  EXPECT_EQ(a.place, b.place);
  EXPECT_EQ(a.first_place, b.first_place);
  EXPECT_GT(frame_bytes(a, 16), 0);
  EXPECT_EQ(most_scratch_of(graph, 16).frame, frame_bytes(b, 16));
}

TEST(Frames, OverlapNowhere) {
  const ModPieces pieces = cut_plan(terms(10), {.whole = 0, .piece = 3}).pieces;
  for (const std::int64_t lanes : {2, 4, 8, 16}) {
    for (const std::int64_t bytes : {4, 8}) {
      const FrameLayout layout = frame_layout(pieces, lanes, bytes);
      std::int64_t end = 0;
      const auto take = [&](std::int64_t begin, std::int64_t size) {
        EXPECT_GE(begin, end);
        end = begin + size;
      };
      const auto take_area = [&](Area area, int vector) {
        const std::int64_t first = layout.begin(area, vector);
        const bool uniform = area == Area::uniform;
        const auto count = static_cast<std::int32_t>(pieces.places[static_cast<std::size_t>(area)]);
        EXPECT_EQ(first % 64, 0);
        take(first, FrameLayout::header);
        for (std::int32_t i = 0; i < count; ++i)
          take(first + layout.value(area, i), uniform ? 8 : lanes * bytes);
        for (std::int32_t i = 0; i < count; ++i)
          take(first + layout.poison(area, i), uniform ? 1 : lanes);
      };
      take_area(Area::uniform, 0);
      take_area(Area::pairs, 0);
      for (int v = 0; v < most_vectors; ++v) take_area(Area::queries, v);
      EXPECT_LE(end, frame_bytes(pieces, lanes));
    }
  }
}

}  // namespace
}  // namespace treadle::plan
