// Contributions whose offset in a gradient is a number of the query plus a number of the key.
#pragma once

#include "ir/joint.h"
#include "plan/dependence.h"

namespace treadle::plan {

// Those to bias[h, q, kv], slopes[h] and table[q - kv] are; one to table[bucket[q - kv]] is not.
bool is_separable(const ir::Graph& derivative, const ir::Contribution& contribution);

// The same where the dependences are known.
bool is_separable(const ir::Graph& derivative, const ir::PerNode<Dependence>& on,
                  const ir::Contribution& contribution);

}  // namespace treadle::plan
