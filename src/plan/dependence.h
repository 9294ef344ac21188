// What the nodes of a graph depend on, and so how often each is computed.
//
//   slopes[h] * 2    once per head: head
//   q % 8            once per tile of queries: queries
//   table[kv]        once per key: key
//   score + q - kv   for every pair: pair
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "ir/per_node.h"

namespace treadle::plan {

struct Dependence {
  bool q = false, kv = false;
  bool score = false;  // on the score or on the incoming gradient

  bool operator==(const Dependence&) const = default;
};

// From the rarest to the most frequent, as far as they can be compared.
enum class Level : std::uint8_t { head, queries, key, pair };

ir::PerNode<Dependence> dependences(const ir::Graph& graph);

Level level_of(const Dependence& on);

}  // namespace treadle::plan
