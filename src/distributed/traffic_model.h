// What an assignment costs each rank, as far as it can be known without layouts: pairs, bytes, messages, time.
//
// Forward: rows of K and V, and of q of leaves that moved, to who needs them; results back. What is found of a cut leaf
// are states, which meet at who joins them. Backward: the same rows with dout, lse and delta; dQ
// back; dK and dV in f32 to who has the keys, piece by piece of the sums' tree (plan/tree_parts.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/assignment.h"
#include "distributed/deal.h"
#include "distributed/homes.h"

namespace treadle::distributed {

// A state of a row: its values, the largest score and the sum.
inline constexpr std::int64_t state_numbers = 2, state_bytes = 4;

struct Modelled {
  Candidate candidate;
  std::vector<double> pairs;  // by rank
  std::vector<Traffic> forward, backward;
  std::vector<std::int64_t> memory;
};

// What does not depend on the candidate.
struct Problem {
  const PlanCall& call;
  std::span<const PassWork> passes;
  const Costs& costs;  // of these
  const std::vector<layout::Tiles>& tiles;
  const std::vector<Homes>& homes;   // of the leaves of each pass
  std::vector<std::size_t> tilings;  // tilings_of() the passes
  const Shards &queries, &keys;
  const PlanOptions& options;

  [[nodiscard]] int ranks() const { return keys.ranks(); }
};

// How many pairs a rank looks at while its network carries the state of a row.
double pairs_of_state(const PlanCall& call, const PlanOptions& options);

// Pieces are sorted by rank.
Modelled model(const Problem& problem, std::span<const Piece> pieces, int head_groups);

}  // namespace treadle::distributed
