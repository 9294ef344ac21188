// Interpret: what every operation means, over many points at once.
//
//   Interpreter<float> run(graph, bindings);
//   run(Points<float>{.score = scores, .b = b, .h = h, .q = q, .kv = kv}, n);
//   run.reals(0)[i]     // output 0 at point i
//
// F is the float of the evaluation. In fp32 an operation takes its fp32 operands, computes in fp64
// and rounds once.
//
// Reads outside a buffer, and integer divisions by a run-time zero, touch no memory and poison
// their value. Poison follows three-valued rules: false && poison is false, true || poison is true,
// where() takes only its chosen side; everything else that uses a poisoned value is poisoned. What
// to do about a poisoned output is the caller's decision.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "treadle/view.h"

namespace treadle::ir {

// Values of the inputs: one per point, or a single one that holds for all points. Inputs that the
// graph does not use may be empty.
template <class F>
struct Points {
  std::span<const F> score = {}, grad = {};
  std::span<const std::int64_t> b = {}, h = {}, q = {}, kv = {};
};

template <class F>
class Interpreter {
 public:
  // bindings[i] is the memory of graph.slots()[i]; dtype and rank must agree.
  Interpreter(const Graph& graph, std::vector<ConstView> bindings);
  // Other memory from now on.
  void bind(const std::vector<ConstView>& bindings);

  void operator()(const Points<F>& points, std::int64_t count);

  // Results of the last run, by output.
  [[nodiscard]] std::span<const F> reals(int output) const;
  [[nodiscard]] std::span<const std::int64_t> integers(int output) const;
  [[nodiscard]] std::span<const std::uint8_t> booleans(int output) const;

  // One byte per point, or empty when no point is poisoned.
  [[nodiscard]] std::span<const std::uint8_t> poison(int output) const;

  // Says which read or division poisoned an output at a point of the last run:
  // "slopes: index 8 along dimension 0 is outside its length 8".
  [[nodiscard]] std::string poison_reason(int output, std::int64_t point) const;

 private:
  void check_bindings() const;

  struct Column {
    std::vector<F> real;
    std::vector<std::int64_t> integer;
    std::vector<std::uint8_t> boolean;
    std::vector<std::uint8_t> poison;  // empty when there is none
  };

  void evaluate(NodeId id, const Points<F>& points, std::int64_t count);
  void evaluate_load(NodeId id, std::int64_t count);
  void evaluate_poison(NodeId id, std::int64_t count);
  [[nodiscard]] const Column& operand(NodeId id, int i) const {
    return columns_[graph_[id].operands[static_cast<std::size_t>(i)]];
  }
  [[nodiscard]] const ConstView& memory_of(const Node& load) const {
    return bindings_[static_cast<std::size_t>(load.slot)];
  }

  Graph graph_;
  std::vector<ConstView> bindings_;
  PerNode<Column> columns_;
  // Of the elements that a load reads: where they are, and whether that is outside the buffer.
  std::vector<std::int64_t> offsets_;
  std::vector<std::uint8_t> outside_;
};

extern template class Interpreter<float>;
extern template class Interpreter<double>;

// Checks that memory of this dtype and rank may be bound to the slot; throws treadle::Error.
void check_binding(const Slot& slot, const ConstView& view);

}  // namespace treadle::ir
