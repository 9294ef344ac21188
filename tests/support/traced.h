// Mods as graphs, with the memory they captured.
//
//   EXPECT_EQ(traced_mask(mods::causal()).text(), "q >= kv");
//   traced_score(mod).at({.score = 0.5, .h = 1}).real
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "evaluate.h"
#include "ir/print.h"
#include "trace/trace.h"

namespace treadle::test {

struct Traced {
  ir::Graph graph;
  std::vector<Capture> captures;

  [[nodiscard]] std::string text() const { return ir::to_text(graph); }

  // The value at one point, with the captures as they are now.
  [[nodiscard]] Outcome at(const Point& point) const {
    std::vector<ConstView> views;
    for (const ir::Slot& slot : graph.slots()) {
      views.push_back(std::ranges::find(captures, slot.name, &Capture::name)->view());
    }
    return evaluate(graph, point, views);
  }
};

inline Traced traced_score(const ScoreMod& mod) {
  const auto table = std::make_shared<trace::CaptureTable>();
  ir::Graph graph = trace::trace(mod, table);
  return {std::move(graph), table->captures()};
}

inline Traced traced_mask(const MaskMod& mod) {
  const auto table = std::make_shared<trace::CaptureTable>();
  ir::Graph graph = trace::trace(mod, table);
  return {std::move(graph), table->captures()};
}

}  // namespace treadle::test
