// An Assignment: who computes what.
//
//   const Assignment assigned = assign(call, passes, tiles, queries, keys, options);
//   for (const Piece& piece : assigned.of(rank)) ...
//   assigned.describe()              // what was looked at, what it costs, what was taken
//
// Ranks are G head groups x R / G parts: rank r is in group r % G and computes key heads of that group
// only. Within a group work is divided by leaves of the queries, and where that is too coarse by key
// heads, batch entries and chunks of keys. All ranks find the same from the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "distributed/work.h"
#include "layout/order.h"
#include "layout/range.h"
#include "treadle/distributed.h"

namespace treadle::distributed {

// Some leaves of a pass, for some batch entries and key heads, against some chunks of the keys. All pieces
// together are everything once, except that of a cut leaf chunks in which it looks at nothing may be
// missing, but never the first of all. What pieces of a cut leaf find meets at the rank that has its first
// chunk, head by head.
struct Piece {
  int rank = 0;
  std::int64_t pass = 0;
  layout::Range leaves, batch, key_heads;
  layout::Range chunks;  // of all keys, counted from 0; fewer than all: the piece is cut
  // Of the pass: those of its leaves, or of a piece that is cut and does not have the first chunk,
  // from the half of the leaf with the first to the last that looks at its chunks. A cut piece has one
  // leaf.
  layout::Range tiles = {};

  bool operator==(const Piece&) const = default;
};

// Along what a leaf may be divided. Gradients of some captures are chains of additions over all heads, batch entries or
// keys of a task, which have the bits of one machine's call only if one rank has all of it.
struct Divisible {
  bool heads = true, batch = true, chunks = true;
};

// What the planner has to know of a call.
struct PlanCall {
  std::int64_t batch = 1, key_batch = 1, key_heads = 1;
  std::int64_t per_key_head = 1;  // query heads
  layout::Range queries, keys;    // positions
  std::int64_t dim = 64, value_dim = 64;
  std::int64_t query_bytes = 4, key_bytes = 4, value_bytes = 4;  // of an element
  std::vector<std::int64_t> tiles_per_leaf;                      // of each pass
  Divisible divisible;
};

// How leaves find their ranks.
enum class Route : std::uint8_t {
  transport,  // to who has their queries, and what is too much to others, in order
  stream,     // in order, an equal share to each
};

// What an assignment would cost.
struct Candidate {
  int head_groups = 1;
  Route route = Route::transport;
  double balance = 1;                // the largest share of pairs over the mean
  double forward = 0, backward = 0;  // modelled seconds
  // Received by the rank that receives most, as an all-gather's bytes are counted, and sent.
  std::int64_t forward_bytes = 0, backward_bytes = 0;
  std::int64_t forward_sent = 0, backward_sent = 0;
  std::int64_t messages = 0;  // of a forward, of the rank that sends most
  std::int64_t memory = 0;    // bytes, of the rank that takes most

  [[nodiscard]] double seconds() const { return forward + backward; }
  bool operator==(const Candidate&) const = default;
};

struct Assignment {
  std::vector<Piece> pieces;          // by rank, then by pass and leaf
  std::vector<Candidate> candidates;  // the one that was taken is the first
  // By rank, modelled from PassWork::keys.
  std::vector<double> pairs;
  std::vector<Traffic> forward, backward;
  std::vector<std::int64_t> memory;
  std::int64_t all_gather = 0;  // bytes that a rank receives to have all keys and values, at most

  [[nodiscard]] const Candidate& taken() const { return candidates.front(); }
  [[nodiscard]] std::span<const Piece> of(int rank) const;
  [[nodiscard]] std::string describe() const;
};

std::string_view name_of(Route route);

// `passes` has all leaves, `tiles` those of each pass. Throws treadle::Error for head groups that
// divide neither ranks nor key heads.
Assignment assign(const PlanCall& call, std::span<const PassWork> passes,
                  const std::vector<layout::Tiles>& tiles, const Shards& queries,
                  const Shards& keys, const PlanOptions& options);

}  // namespace treadle::distributed
