// Contributions whose place in a gradient is a number of the query plus a number of the key.
#pragma once

#include "ir/joint.h"

namespace treadle::plan {

// bias[h, q, kv], slopes[h] and table[q - kv] are; table[bucket[q - kv]] is not.
bool is_separable(const ir::Graph& derivative, const ir::Contribution& contribution);

}  // namespace treadle::plan
