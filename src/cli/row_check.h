// Some rows of a result against the same rows worked out plainly in fp64.
#pragma once

#include "treadle/attention.h"

namespace treadle::cli {

// The largest difference in a handful of rows, first, last and in between; with dropout, of the first
// head.
double row_error(const Options& options, const Inputs& inputs, const ConstView& out,
                 const Dropout& dropout = {});

}  // namespace treadle::cli
