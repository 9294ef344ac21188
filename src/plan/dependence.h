// What the nodes of a graph depend on, and so how seldom each can be computed.
//
//   q % 8            once per tile of queries: queries
//   slopes[h] * 2    once per head: head
//   table[kv]        once per key: key
//   score + q - kv   for every pair: pair
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace treadle::plan {

struct Dependence {
  bool q = false, kv = false;
  bool score = false;  // on the score or on the incoming gradient

  bool operator==(const Dependence&) const = default;
};

// From the most seldom to the most frequent, as far as they can be compared.
enum class Level : std::uint8_t { head, queries, key, pair };

// By node.
std::vector<Dependence> dependences(const ir::Graph& graph);

Level level_of(const Dependence& on);

}  // namespace treadle::plan
