// How each captured read of a graph is made: one load for all lanes if that can be, a gather if
// not.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "plan/dependence.h"
#include "plan/mod_facts.h"

namespace treadle::plan {

enum class ReadForm : std::uint8_t {
  uniform,    // doc[kv]: the same element for all lanes
  lanes,      // bias[kv, q]: the lanes' elements lie side by side
  backwards,  // bias[kv - q + 100]: so they do, the last lane's first
  staged,     // bias[q, kv]: each lane's elements for the coming keys lie side by side
  gather,     // doc[order[q]]: anywhere
};

// By node; of nodes that are no loads it says nothing. Lanes, backwards and staged read ahead of
// what is checked, so they are for facts that are not `checked`.
std::vector<ReadForm> read_forms(const ir::Graph& graph, const std::vector<Dependence>& on,
                                 const ModFacts& facts);

// By how much an integer grows when `input` grows by one, if that is always the same and evident:
// if `input` comes in through sums, differences and constant factors alone.
std::optional<std::int64_t> coefficient(const ir::Graph& graph, ir::NodeId id, ir::Input input);

}  // namespace treadle::plan
