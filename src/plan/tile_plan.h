// A TilePlan: the shape of the code that handles one tile of queries against one block of keys,
// forward and backward.
//
//   TilePlan plan = plan_tile(host_target(), DType::f32, 64, 64, 3);
//   to_text(plan)    // "f32, dim 64, value dim 64: tiles of 24 queries, 4 keys at a time, ..."
//
// All numbers that follow from a machine's registers and caches are decided in tile_plan.cpp and
// reduce_kernel.cpp; emitters and workers only read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "layout/layout.h"
#include "layout/order.h"
#include "layout/tile_weights.h"
#include "plan/mod_pieces.h"
#include "plan/target.h"

namespace treadle::plan {

// Tiles of more vectors leave too few registers for keys.
inline constexpr int most_vectors = 3;

// How the keys and values of a block lie in memory when a kernel reads them.
struct KeyForm {
  enum class Order : std::uint8_t {
    rows,  // [count][dim], contiguous; a product of packed pairs would add its own order
  };
  Order order = Order::rows;
  DType element = DType::f32;

  bool operator==(const KeyForm&) const = default;
};

struct TilePlan {
  Target target;
  DType compute = DType::f32;  // f32 or f64
  std::int64_t dim = 0, value_dim = 0;
  int vectors = 1;  // of queries in a tile
  int rows = 1;     // keys, or value dimensions, whose products are in registers at once
  std::int64_t key_block = 64;  // the most keys a kernel call handles
  KeyForm keys;
  PieceSize mods;  // how large they are before they are cut
  // Tiles look at few keys of a chunk, or of a block: kernels have loops for that besides.
  bool sparse = false;

  [[nodiscard]] std::int64_t width() const { return vectors * target.lanes(compute); }  // queries
  bool operator==(const TilePlan&) const = default;
};

TilePlan plan_tile(const Target& target, DType compute, std::int64_t dim, std::int64_t value_dim,
                   int vectors);

// A few keys, which is what a sparse tile has of a chunk, and those that groups of `rows` leave over,
// multiply in groups of so many.
inline constexpr int few_keys = 4;
// The most that may be left over for that to be faster than another group of `rows`.
int most_in_few(const TilePlan& plan);
// Whether that matters for a layout: such kernels take longer to compile.
bool is_sparse(const layout::Layout& layout);

// Vectors of the tiles that queries in groups of `height` make, the last of which may be cut.
int vectors_for(const Target& target, DType compute, std::int64_t height);

// Which kernel takes tiles of 1, 2, 3 vectors' worth of queries, by that number - 1. A size that
// few tiles have is not worth a kernel: the next larger one pads them.
std::vector<int> kernel_vectors(const layout::Tiles& tiles, int lanes);

// How many tiles share a block of keys while it is in the cache, or its copy.
int tiles_per_group(const TilePlan& plan, bool copies_keys);
// The same for the backward, whose sums over queries go through a group's tiles at once.
int tiles_per_backward_group(const TilePlan& plan);
// Tiles of queries whose contributions to dK, dV and gradients of captures, with all heads of a key
// head, are summed on their own before they join the others (run/sum_tree.h).
inline int tiles_per_leaf(const TilePlan& plan) { return 2 * tiles_per_backward_group(plan); }

// Tiles share blocks of keys as long as at most this many times the keys pass that each of them
// has to look at.
inline constexpr double most_shared = 1.25;
// The same for tiles of one residue class: their keys have to be copied, which is then done once for
// all of them.
inline constexpr double most_shared_by_class = 2.5;

// Chunks whose keys a tile that shares none with others looks at in one go.
inline constexpr std::int64_t chunks_at_once = 16;

// Keys that are read in place come in runs at least this long; shorter ones are copied.
inline constexpr std::int64_t shortest_in_place = 16;

// What tiles of 1 to most_vectors vectors cost per key.
layout::TileWeights tile_weights(const Target& target, DType compute);

base::Hash hash(const TilePlan& plan);
std::string to_text(const TilePlan& plan);

}  // namespace treadle::plan
