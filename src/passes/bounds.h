// Bounds: what a graph can be over a box, by analysis and not by evaluation.
//
//   CaptureTables tables(memory);
//   Bounds bounds(mask, tables);
//   bounds.truth(box)      Truth::always, Truth::never or Truth::unsure
//
// The promise: always means true at every point of the box, never means false at every point, and
// no point of such a box is poisoned; when unsure, unsure. Ranges of numbers contain every value at
// every point that is not poisoned. A Bounds is for one thread; the tables may be shared.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "passes/bound.h"
#include "passes/box.h"
#include "passes/range_table.h"

namespace treadle::passes {

enum class Truth : std::uint8_t { never, always, unsure };

// Whether reads are bounded by what the captured arrays hold, at the price of one pass over each,
// or by what their types can hold.
enum class Contents : std::uint8_t { scanned, ignored };

class Bounds {
 public:
  Bounds(const ir::Graph& graph, CaptureTables& tables, Contents contents = Contents::scanned);

  // Before the next box: the captures have been bound anew, or may hold something else.
  void forget();

  // Of the first output, which must be a bool; unsure also where another output may be poisoned.
  Truth truth(const Box& box);

  // Of any output or node, after evaluate(box).
  void evaluate(const Box& box);
  [[nodiscard]] const Bound& output(int i) const { return bounds_[graph_.output(i)]; }
  [[nodiscard]] const Bound& of(ir::NodeId id) const { return bounds_[id]; }

  // After evaluate(box): no read of the graph, chosen by where() or not, leaves its buffer at any
  // point of the box.
  [[nodiscard]] bool reads_inside() const;
  // After evaluate(box): nor does any division meet a zero, so there is no poison at all.
  [[nodiscard]] bool never_poisoned() const;
  // After evaluate(box): every integer of the graph, also in between, fits 32 bits where it is not
  // poisoned.
  [[nodiscard]] bool fits_32_bits() const;

 private:
  Bound leaf(ir::NodeId id, const Box& box);
  [[nodiscard]] Bound input(ir::Input input, const Box& box) const;
  Bound load(ir::NodeId id);
  [[nodiscard]] const Bound& operand(const ir::Node& node, std::size_t i) const {
    return bounds_[node.operands[i]];
  }

  const ir::Graph& graph_;
  CaptureTables& tables_;
  Contents contents_;
  ir::PerNode<Bound> bounds_;
  Box box_;  // of the last evaluation
  bool evaluated_ = false;
  Counts counts_{};
  // A bit for each of b, h, q, kv: others cannot change the node's bound.
  ir::PerNode<std::uint8_t> depends_;
  ir::PerNode<bool> inside_;  // whether the node's own read stays inside
  // The table a load used last: consecutive boxes mostly ask for the same.
  struct Used {
    const RangeTable* table = nullptr;
    int axis = -1;
    std::int64_t offset = 0;
  };
  ir::PerNode<Used> used_;
};

}  // namespace treadle::passes
