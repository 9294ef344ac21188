// An Assignment: who computes what.
//
//   const Assignment plan = assign(call, passes, queries, keys, options);
//   for (const Piece& piece : plan.of(rank)) ...
//
// Ranks are G head groups x R / G parts: rank r is in group r % G and computes key heads of that group
// only. Within a group work is divided by leaves of the queries, and where that is too coarse by key
// heads and chunks of keys.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/range.h"

namespace treadle::distributed {

// Some leaves of a pass, for some batch entries and key heads, against some chunks of the keys.
struct Piece {
  int rank = 0;
  std::int64_t pass = 0;
  layout::Range leaves, batch, key_heads;
  layout::Range chunks;  // of all keys, counted from 0; fewer than all: the piece is cut
};

}  // namespace treadle::distributed
