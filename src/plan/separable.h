// Contributions whose offset in a gradient is a number of the query plus a number of the key.
#pragma once

#include <span>
#include <vector>

#include "ir/joint.h"
#include "plan/dependence.h"

namespace treadle::plan {

// For each contribution: those to bias[h, q, kv], slopes[h] and table[q - kv] are, one to
// table[bucket[q - kv]] is not. `on` are the dependences of the derivative.
std::vector<bool> separable_contributions(const ir::Graph& derivative,
                                          const ir::PerNode<Dependence>& on,
                                          std::span<const ir::Contribution> contributions);

}  // namespace treadle::plan
