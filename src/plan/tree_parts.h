// The tree of a sum over queries (run/sum_tree.h), and the nodes that whoever has some of its leaves
// can complete.
//
//   const TreeParts parts = tree_parts({5, 6, 7, 8, 9, 10, 11, 12}, 40);
//   parts.pieces    // leaf 5, leaf 6, leaf 7, the node of leaves 8 .. 11, leaf 12
//
// Four leaves join in order to a node, four nodes to one of the next level; the last of at most six
// levels joins any number. Joining is a chain: ((a + b) + c) + d. So who has leaves 8, 9 and 10
// hands over (8 + 9) + 10, and who has 9 and 10 hands over both, for the owner of 8 comes before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/range.h"

namespace treadle::plan {

inline constexpr int most_tree_levels = 6;
inline constexpr std::int64_t tree_children = 4;

// Of a tree with so many leaves; 0 for one leaf.
int tree_levels(std::int64_t leaves);

// Joins the node of level `level` that holds leaf leaves.begin: what it has by then are all leaves
// before. Level 0 only in a tree of one leaf.
struct TreePiece {
  int level = 0;
  layout::Range leaves;

  bool operator==(const TreePiece&) const = default;
};

// What happens when one of the leaves is complete: nodes of levels 0, 1, ... join the next one, so
// many times; then some are handed over.
struct LeafEnd {
  struct HandOver {
    int level = 0;          // of the node that has it
    std::size_t piece = 0;  // its number
  };
  int joins = 0;
  std::vector<HandOver> hand_over;
};

struct TreeParts {
  std::vector<TreePiece> pieces;  // ascending
  std::vector<LeafEnd> ends;      // of each leaf that was given
};

// Of the leaves with these numbers, which ascend, among `all`.
TreeParts tree_parts(std::span<const std::int64_t> leaves, std::int64_t all);

}  // namespace treadle::plan
