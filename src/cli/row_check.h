// Some rows of a result against the same rows worked out plainly in fp64.
#pragma once

#include "treadle/attention.h"

namespace treadle::cli {

// The largest difference in a handful of rows, first, last and in between.
double row_error(const Options& options, const Inputs& inputs, const ConstView& out);

}  // namespace treadle::cli
