// Gradients of attention sinks: sums over the rows of all ranks (api/sinks.h).
#pragma once

#include <cstddef>
#include <vector>

#include "distributed/call_facts.h"
#include "distributed/given.h"
#include "distributed/held_plan.h"

namespace treadle::distributed {

// What this rank adds to them, as it is told to the others.
std::vector<std::byte> own_sink_nodes(const Plan::Held& held, const CallFacts& facts,
                                      const Given& given);
// Each head's gradient, of all batch entries and ranks, which all call this.
std::vector<double> dsinks_of(Plan::Held& held, const CallFacts& facts,
                              const std::vector<std::byte>& own);

}  // namespace treadle::distributed
