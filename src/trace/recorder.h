// The Recorder: where a traced function's operations are written down.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/builder.h"
#include "trace/captures.h"
#include "treadle/mod.h"

namespace treadle::trace {

// A value in which neither the score nor an index takes part, as in 1.0 / temperature(): nothing
// says yet which mod it belongs to. It is kept as a tree, and written down where it meets a traced
// value.
struct Loose {
  ir::Op op = ir::Op::constant;            // of the one operand, a number
  std::vector<Operand> operands;           // Op::load: indices
  std::shared_ptr<const Capture> capture;  // Op::load
  std::optional<ir::Type> type;            // nothing where writing it down will fail

  // Without recursion, however deep it is.
  ~Loose();
};

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<CaptureTable> table) : table_(std::move(table)) {}

  // The node of an operand. A value of another recorder is refused: its number means nothing here.
  ir::NodeId node_of(const Operand& operand);

  ir::Builder& make() { return make_; }

 private:
  friend Value apply(ir::Op op, std::span<const Operand> operands);
  friend Value load(const Capture& capture, std::span<const Operand> indices);
  std::vector<ir::NodeId> nodes_of(std::span<const Operand> operands);
  ir::NodeId node_of(const std::shared_ptr<const Loose>& loose);
  // What is loose in its operands has been written down.
  ir::NodeId written(const Loose& loose);

  ir::Builder make_;
  std::shared_ptr<CaptureTable> table_;
  // Loose values that are written down here: what they share is walked once.
  std::unordered_map<std::shared_ptr<const Loose>, ir::NodeId> tightened_;
};

// What operators do: write the operation down beside its operands, or keep it loose.
Value apply(ir::Op op, std::span<const Operand> operands);
Value load(const Capture& capture, std::span<const Operand> indices);
Value constant(const Operand& number);

ir::Type type_of(const Operand& operand);

// What parse() made.
struct Parsed {
  ir::Graph graph;
  std::vector<Capture> captures;  // by slot of the graph
};

}  // namespace treadle::trace
