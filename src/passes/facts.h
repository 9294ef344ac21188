// Small facts about nodes of a builder that simplify's rules ask for.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace treadle::passes {

class Facts {
 public:
  explicit Facts(const ir::Builder& make) : make_(make) {}

  // Can never be poisoned, so it may be dropped.
  bool sound(ir::NodeId id) { return !at(id).poisonable; }
  // An integer that is zero or more at every point.
  bool never_negative(ir::NodeId id) { return at(id).never_negative; }
  // An integer so small that adding or subtracting two such cannot wrap. Lengths are below 2^31.
  bool small(ir::NodeId id) { return at(id).small; }

  [[nodiscard]] bool is_constant(ir::NodeId id) const { return make_[id].op == ir::Op::constant; }
  [[nodiscard]] bool is_integer(ir::NodeId id, std::int64_t value) const;
  [[nodiscard]] bool is_real(ir::NodeId id, double value) const;  // same bits: 0.0 is not -0.0
  [[nodiscard]] bool is_boolean(ir::NodeId id, bool value) const;

 private:
  struct Fact {
    bool poisonable = false;
    bool never_negative = false;
    bool small = false;
  };
  const Fact& at(ir::NodeId id);
  [[nodiscard]] Fact fact_of(ir::NodeId id) const;

  const ir::Builder& make_;
  ir::PerNode<Fact> facts_;  // of the first nodes; grows as they are asked for
};

}  // namespace treadle::passes
