// How much of the work a mask leaves.
#pragma once

#include "cli/demo_variants.h"
#include "treadle/executor.h"
#include "treadle/mod.h"

namespace treadle::cli {

// The part of all (query, key) pairs that may see each other, between 0 and 1.
double visible_share(const MaskMod& mask, const Sizes& sizes, Executor& executor);

}  // namespace treadle::cli
