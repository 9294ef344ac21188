// A ForwardPlan: the shape of the code that handles one tile of queries against one block of keys.
//
//   ForwardPlan plan = plan_forward(host_target(), DType::f32, 64, 64, 3);
//   to_text(plan)    "forward f32, dim 64, value dim 64: tiles of 24 queries, 4 keys at a time,
//   blocks of 64 keys"
#pragma once

#include <cstdint>
#include <string>

#include "base/hash.h"
#include "layout/statistics.h"
#include "plan/target.h"

namespace treadle::plan {

// Tiles of more vectors leave too few registers for keys.
inline constexpr int most_vectors = 3;

struct ForwardPlan {
  Target target;
  DType compute = DType::f32;  // f32 or f64
  std::int64_t dim = 0, value_dim = 0;
  int vectors = 1;  // of queries in a tile
  int rows = 1;     // keys, or value dimensions, whose products are in registers at once
  std::int64_t key_block = 64;  // the most keys a kernel call handles

  [[nodiscard]] std::int64_t width() const { return vectors * target.lanes(compute); }  // queries
};

ForwardPlan plan_forward(const Target& target, DType compute, std::int64_t dim,
                         std::int64_t value_dim, int vectors);

// Vectors of the tiles that queries in groups of `height` make, the last of which may be cut.
int vectors_for(const Target& target, DType compute, std::int64_t height);

// How many tiles share a block of keys while it is in the cache, or its copy.
int tiles_per_group(const ForwardPlan& plan, bool copies_keys);
// The same for the backward, whose sums over queries go through a group's tiles at once.
int tiles_per_backward_group(const ForwardPlan& plan);

// Sums end, and work may be cut, at multiples of this many keys; from the number of keys alone, so
// that results do not depend on anything else.
std::int64_t chunk_length(std::int64_t keys);

// What tiles of 1, 2 and 3 vectors cost per key, for choosing query orders.
layout::TileWeights tile_weights(const Target& target, DType compute);

base::Hash hash(const ForwardPlan& plan);
std::string to_text(const ForwardPlan& plan);

}  // namespace treadle::plan
