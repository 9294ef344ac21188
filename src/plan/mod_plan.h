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
#include "plan/read_form.h"

namespace treadle::plan {

struct ModPlan {
  ir::Graph graph;
  ModFacts facts;
  ir::PerNode<Dependence> on;
  ir::PerNode<Level> level;
  ir::PerNode<ReadForm> read;  // of loads
  // Nodes that are computed. The last index of a read in the lanes, backwards or staged form is
  // taken apart by the read itself: only those of its parts are wanted that do not change with the
  // lane or the key.
  ir::PerNode<bool> wanted;
  std::vector<ir::NodeId> staged;  // the loads of this form, in the order of their scratch arrays
  // Of a derivative, by contribution: whether its offset is a number of the query plus a number of
  // the key.
  std::vector<bool> separable;

  // Whether a read takes contiguous elements, lane by lane.
  [[nodiscard]] bool reads_lanes() const;
  // Which of the staged loads this is.
  [[nodiscard]] std::size_t staged_number(ir::NodeId load) const;
};

// `contributions` are those of a derivative, whose graph this is.
ModPlan plan_mod(const ir::Graph& graph, const ModFacts& facts,
                 std::span<const ir::Contribution> contributions = {});

}  // namespace treadle::plan
