// Shared choices: which terms of a mask share tiles of queries, and which get their own.
#pragma once

#include <vector>

#include "layout/choose.h"

namespace treadle::layout {

// Neighbouring terms of a mask are looked at in one pass iff their tiles hold the same queries.
bool share_a_pass(const Choice& term, const Choice& next);
bool share_a_pass(const Tiles& term, const Tiles& next);

// Neighbouring terms in one pass.
struct SharedPass {
  std::vector<Choice> terms;  // of one order and height; costs are each term's own
  double cost = 0;            // of all of them together
  double apart = 0;           // what passes of their own would cost, each with its best candidate
};

// The cheapest way to put terms into passes, from the costed candidates of each, best first. A pass
// reads queries once; between passes the sums of every query are written and read again.
std::vector<SharedPass> shared_choices(const std::vector<std::vector<Choice>>& candidates,
                                       const Extent& extent, const TileWeights& weights);

}  // namespace treadle::layout
