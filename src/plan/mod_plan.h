// A ModPlan: how a mod's graph is evaluated for a tile of queries and a block of keys.
//
//   const ModPlan plan = plan_mod(graph, facts);      // score + bias[h, q, kv]
//   plan.level[id]     // how often a node is computed: per head, query, key or pair
//   plan.read[id]      // how a load is made: bias is staged
//   plan.wanted[id]    // whether the node is computed at all
//
// It knows graphs and facts, and no code generator: an emitter walks the nodes in order, once per
// level.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"
#include "ir/joint.h"
#include "ir/per_node.h"
#include "plan/dependence.h"
#include "plan/mod_facts.h"
#include "plan/mod_pieces.h"
#include "plan/read_form.h"

namespace treadle::plan {

struct ModPlan {
  ir::Graph graph;
  ModFacts facts;
  ir::PerNode<Dependence> on;
  ir::PerNode<Level> level;
  ir::PerNode<ReadForm> read;  // of loads
  // Nodes that are computed. The last index of a read in the lanes, backwards or staged form is
  // taken apart: of its parts only those are wanted that do not change with the lane or the key, and
  // the others are computed for the first query of a vector, or the first key of a block, alone.
  ir::PerNode<bool> wanted, at_first_query, at_first_key;
  std::vector<ir::NodeId> staged;  // the loads of this form, in the order of their scratch arrays
  ir::PerNode<std::int32_t> staged_number;  // which of them a load is
  // Of a staged load's array, for each element of it: the bytes of the arrays before it, and in the
  // end of all. Arrays have an element for each key of a block and query of a tile.
  std::vector<std::int64_t> staged_before{0};
  // Of a derivative, by contribution: whether its offset is a number of the query plus a number of
  // the key.
  std::vector<bool> separable;

  ir::PerNode<std::int32_t> first_index;  // of loads: which of all indices of loads is its first

  ModPieces pieces;  // if the mod is large

  // Whether an index of a load is moved inside the buffer.
  [[nodiscard]] bool clamps(ir::NodeId load, std::size_t axis) const;
  // Whether a read takes contiguous elements, lane by lane.
  [[nodiscard]] bool reads_lanes() const;
};

// Scratch that the mods of a kernel need, in bytes.
struct ModScratch {
  std::int64_t staged = 0;  // for each key of a block and query of a tile
  std::int64_t frame = 0;

  ModScratch& operator+=(const ModScratch& other) {
    staged += other.staged;
    frame += other.frame;
    return *this;
  }
  bool operator==(const ModScratch&) const = default;
};

inline std::int64_t staged_bytes(const ModPlan& plan) { return plan.staged_before.back(); }
ModScratch scratch_of(const ModPlan& plan, std::int64_t lanes);
// The most that it can be, whatever a call is like.
ModScratch most_scratch_of(const ir::Graph& graph, std::int64_t lanes);

// `contributions` are those of a derivative, whose graph this is.
ModPlan plan_mod(const ir::Graph& graph, const ModFacts& facts,
                 std::span<const ir::Contribution> contributions = {}, const PieceSize& size = {},
                 Stages stages = Stages::reads);

}  // namespace treadle::plan
