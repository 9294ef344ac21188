// How each captured read of a graph is made: one load for all lanes where possible, else a gather.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"
#include "ir/per_node.h"
#include "plan/dependence.h"
#include "plan/mod_facts.h"

namespace treadle::plan {

enum class ReadForm : std::uint8_t {
  uniform,    // doc[kv]: the same element for all lanes
  lanes,      // bias[kv, q]: the lanes' elements are contiguous
  backwards,  // bias[kv - q + 100]: contiguous, the last lane's first
  staged,     // bias[q, kv]: each lane's elements for the coming keys are contiguous
  gather,     // doc[order[q]]: anywhere
};

// Of nodes that are not loads the form means nothing. The forms lanes, backwards and staged read
// before indices are checked, so only facts that are not `checked` have them.
ir::PerNode<ReadForm> read_forms(const ir::Graph& graph, const ir::PerNode<Dependence>& on,
                                 const ModFacts& facts);

// By how much an integer grows when `input` grows by one, if that is always the same and evident:
// if `input` comes in through sums, differences and constant factors alone.
std::optional<std::int64_t> coefficient(const ir::Graph& graph, ir::NodeId id, ir::Input input);

}  // namespace treadle::plan
