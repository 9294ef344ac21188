// The derivative of a score mod, as the backward pass evaluates it.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace treadle::ir {

// buffer[index...] += value, at points where `when` is true. The numbers are outputs of the joint
// graph. Where `when` is false the index may lie outside the buffer.
struct Contribution {
  Slot slot;
  int when = 0;
  int value = 0;
  std::vector<int> index;

  bool operator==(const Contribution&) const = default;
};

struct Joint {
  Graph graph;  // output 0 is the gradient of the score
  std::vector<Contribution> contributions;

  bool operator==(const Joint&) const = default;
};

// "dscore = grad * gate[h]" and "gate[h] += grad * score" on lines of their own. No parser reads it.
std::string to_text(const Joint& joint);

}  // namespace treadle::ir
