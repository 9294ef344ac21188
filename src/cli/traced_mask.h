// A mask as layouts want it: the simplified graph, and the memory of its captures.
#pragma once

#include <vector>

#include "layout/build.h"
#include "treadle/mod.h"

namespace treadle::cli {

struct TracedMask {
  layout::Mask mask;
  std::vector<Capture> captures;  // keep the memory alive that the mask reads
};

TracedMask traced(const MaskMod& mask);

}  // namespace treadle::cli
