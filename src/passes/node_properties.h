// What holds for a node at every point, whatever the captures hold: it cannot be poisoned, is never
// negative, is small. The rules of simplify ask for these.
//
//   NodeProperties properties(make);
//   properties.sound(id)
#pragma once

#include "ir/builder.h"

namespace treadle::passes {

class NodeProperties {
 public:
  explicit NodeProperties(const ir::Builder& make) : make_(make) {}

  // Can never be poisoned, so it may be dropped.
  bool sound(ir::NodeId id) { return !at(id).poisonable; }
  // An integer that is zero or more at every point.
  bool never_negative(ir::NodeId id) { return at(id).never_negative; }
  // An integer so small that adding or subtracting two such cannot wrap. Lengths are below 2^31.
  bool small(ir::NodeId id) { return at(id).small; }

 private:
  struct Properties {
    bool poisonable = false;
    bool never_negative = false;
    bool small = false;
  };
  const Properties& at(ir::NodeId id);
  [[nodiscard]] Properties properties_of(ir::NodeId id) const;

  const ir::Builder& make_;
  ir::PerNode<Properties> known_;  // of the first nodes; grows as they are asked for
};

}  // namespace treadle::passes
