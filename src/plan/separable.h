// What the offsets of contributions in a gradient depend on.
#pragma once

#include <span>
#include <vector>

#include "ir/joint.h"
#include "plan/dependence.h"

namespace treadle::plan {

// For each contribution, whether its offset is a number of the query plus a number of the key: those
// to bias[h, q, kv], slopes[h] and table[q - kv] are, one to
// table[bucket[q - kv]] is not. `on` are the dependences of the derivative.
std::vector<bool> separable_contributions(const ir::Graph& derivative,
                                          const ir::PerNode<Dependence>& on,
                                          std::span<const ir::Contribution> contributions);

// For each contribution, whether its offset changes with the key: those of slopes[h] and bias[h, q]
// do not.
std::vector<bool> keyed_contributions(const ir::Graph& derivative,
                                      const ir::PerNode<Dependence>& on,
                                      std::span<const ir::Contribution> contributions);

}  // namespace treadle::plan
