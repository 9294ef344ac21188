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

// Of many reads along kv only the first ones are staged: more arrays than fit the second cache are
// no better than gathers.
inline constexpr int most_staged = 48;

// Whether there is a block of keys to stage reads for, and not just one.
enum class Stages : std::uint8_t { nothing, reads };

// Of nodes that are not loads the form means nothing. The forms lanes, backwards and staged read
// many elements at once, so a mod whose reads are checked has none.
ir::PerNode<ReadForm> read_forms(const ir::Graph& graph, const ir::PerNode<Dependence>& on,
                                 const ModFacts& facts, Stages stages = Stages::reads);

// By how much each integer grows when `input` grows by one, if that is always the same and evident:
// if `input` comes in through sums, differences and constant factors alone.
ir::PerNode<std::optional<std::int64_t>> coefficients(const ir::Graph& graph, ir::Input input);

}  // namespace treadle::plan
