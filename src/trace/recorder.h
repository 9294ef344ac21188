// The Recorder: where a traced function's operations are written down, and which captures it met.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/builder.h"
#include "treadle/mod.h"

namespace treadle::trace {

// The captures of one compilation: each has a name of its own, given or c0, c1, ...
class CaptureTable {
 public:
  // The slot of a capture. The same memory without a name, or the same name, is the same slot.
  ir::Slot slot_of(const Capture& capture);

  // Every capture met so far, with its final name, in the order in which they were met.
  [[nodiscard]] const std::vector<Capture>& captures() const { return captures_; }

 private:
  [[nodiscard]] bool taken(std::string_view name) const;

  std::vector<Capture> captures_;
  std::vector<bool> named_;  // by the user
};

// An element of a capture whose indices are constants or such elements themselves: nothing says yet in which mod it is.
struct Element {
  Capture capture;
  std::vector<Operand> indices;
};

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<CaptureTable> table) : table_(std::move(table)) {}

  // The node of an operand: writes down constants and elements at constant indices. A value of another recorder is
  // refused: its number means nothing here.
  ir::NodeId node_of(const Operand& operand);
  std::vector<ir::NodeId> nodes_of(std::span<const Operand> operands);
  ir::NodeId load(const Capture& capture, std::vector<ir::NodeId> indices);

  ir::Builder& make() { return make_; }

 private:
  ir::Builder make_;
  std::shared_ptr<CaptureTable> table_;
};

// The recorder that the operands were traced with, or null if none was traced.
std::shared_ptr<Recorder> find_recorder(std::span<const Operand> operands);

// The same; throws treadle::Error if none was traced.
std::shared_ptr<Recorder> recorder_of(std::initializer_list<Operand> operands, std::string_view what);

// What parse() made.
struct Parsed {
  ir::Graph graph;
  std::vector<Capture> captures;  // by slot of the graph
};

}  // namespace treadle::trace
