// Shared choices: which terms of a mask share tiles of queries, and which get their own.
#pragma once

#include <vector>

#include "layout/choose.h"

namespace treadle::layout {

// One choice per term, in their order, from the costed candidates of each. Neighbours that get the
// same order and height are looked at in one pass, which reads queries once; between passes the
// sums of every query are written and read again.
std::vector<Choice> shared_choices(const std::vector<std::vector<Choice>>& candidates,
                                   const Extent& extent, const TileWeights& weights);

}  // namespace treadle::layout
