// The captures of one compilation: each has a name of its own, given or c0, c1, ...
//
//   ir::Slot slot = table.slot_of(capture);     while a mod is traced
//   graph = table.settle(graph);               afterwards: names, in the order of its reads
//
// C++ does not say which operand of a + b is evaluated first, so the order in which captures are
// met is the compiler's choice; the order of the graph is not.
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "treadle/capture.h"

namespace treadle::trace {

class CaptureTable {
 public:
  // The slot of a capture. The same memory without a name, or the same name, is the same slot.
  ir::Slot slot_of(const Capture& capture);

  // Gives the captures that this graph reads their final names. Those that no output needs are
  // forgotten.
  ir::Graph settle(const ir::Graph& graph);

  // Every capture that a settled graph reads, with its final name.
  [[nodiscard]] const std::vector<Capture>& captures() const { return settled_; }

 private:
  struct Entry {
    Capture capture;
    bool named;  // by the user
    bool settled;
  };

  [[nodiscard]] bool taken(std::string_view name) const;
  [[nodiscard]] std::string free_name(std::string_view prefix) const;

  std::vector<Entry> entries_;
  std::vector<Capture> settled_;
};

}  // namespace treadle::trace
