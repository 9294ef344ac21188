// SumTree: a sum over queries in a fixed order, whoever computes its parts and wherever they lie.
//
//   tree.carve(carver, rows, length, leaves);
//   tree.clear();
//   for (leaf of the queries) {
//     tree.touch(10, 20);                    // rows 10 .. 20 are zero, unless the leaf had them
//     add(tree.leaf() + 10 * length, ...);
//     tree.close_leaf();
//   }
//   float* sum = tree.finish();              // [rows][length]
//
// A leaf starts at zero and holds the rows that it touched. How leaves join is in plan/tree_parts.h.
// A node is known by its leaves alone, so parts of the sum may be computed apart and joined later. With six
// levels a chunk of 16,384 keys takes seven times its rows, for any number of queries; a binary tree
// would take 13 times as much for a million of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "plan/tree_parts.h"
#include "run/scratch.h"

namespace treadle::run {

template <class F>
class SumTree {
 public:
  // Of `leaves` leaves.
  void carve(Carver& carver, std::int64_t rows, std::int64_t length, std::int64_t leaves);
  // Nothing touched, no leaf closed.
  void clear();

  // [rows][length]; rows that the current leaf has not touched are undefined.
  [[nodiscard]] F* leaf() const { return nodes_[0].sums; }
  void touch(std::int64_t begin, std::int64_t end) {
    const std::uint8_t* touched = nodes_[0].touched;
    for (std::int64_t row = begin; row < end; ++row)
      if (touched[row] == 0) return touch_new(row, end);
  }
  // The leaf has no more to add to these rows: they may be joined already.
  void close_rows(std::int64_t begin, std::int64_t end);
  void close_leaf();
  // Leaves that touch nothing, as if each had been closed.
  void skip(std::int64_t leaves);

  // Of leaves that are only some of the sum's: closes one and hands over nodes that are complete as
  // far as they can be here: give(number of the piece, begin, end, sums of row begin).
  template <class Give>
  void close_leaf(const plan::LeafEnd& end, const Give& give) {
    for (int level = 0; level < end.joins; ++level) join(node(level + 1), node(level));
    for (const plan::LeafEnd::HandOver& over : end.hand_over) {
      Node& from = node(over.level);
      for_stretches(from.touched, from.begin, from.end,
                    [&](std::int64_t begin, std::int64_t past, bool touched) {
                      if (touched) give(over.piece, begin, past, from.sums + begin * length_);
                    });
      std::fill(from.touched + from.begin, from.touched + from.end, std::uint8_t{0});
      from.begin = from.end = 0;
    }
  }
  // And joins them: between the two the current leaf is such a piece. Pieces ascend; those that touch nothing may be
  // left out.
  void open_piece(const plan::TreePiece& piece) { skip(piece.leaves.begin - closed_); }
  void close_piece(const plan::TreePiece& piece);

  // The whole sum; rows that nothing touched are zero. The current leaf, if any, has been closed.
  F* finish();
  // The same, without looking at rows that nothing touched: each(begin, end, sums of row begin).
  template <class Each>
  void finish_touched(const Each& each) {
    const Node& root = join_all();
    for_stretches(root.touched, root.begin, root.end,
                  [&](std::int64_t begin, std::int64_t end, bool touched) {
                    if (touched) each(begin, end, root.sums + begin * length_);
                  });
  }

 private:
  void touch_new(std::int64_t begin, std::int64_t end);

  struct Node {
    F* sums = nullptr;
    std::uint8_t* touched = nullptr;  // [rows]
    std::int64_t begin = 0, end = 0;  // no row outside is touched
  };
  [[nodiscard]] Node& node(int level) { return nodes_[static_cast<std::size_t>(level)]; }
  Node& join_all();
  // into += from, which is empty then.
  void join(Node& into, Node& from);
  void join_rows(Node& into, Node& from, std::int64_t begin, std::int64_t end);
  // For each stretch of equally touched rows of begin .. end: each(begin, end, touched).
  template <class Each>
  static void for_stretches(const std::uint8_t* touched, std::int64_t begin, std::int64_t end,
                            const Each& each) {
    while (begin < end) {
      const std::uint8_t* next =
          std::find(touched + begin, touched + end, static_cast<std::uint8_t>(1 - touched[begin]));
      const std::int64_t stop = next - touched;
      each(begin, stop, touched[begin] != 0);
      begin = stop;
    }
  }

  std::array<Node, plan::most_tree_levels + 1>
      nodes_;  // by level: what is complete and not yet joined
  std::int64_t rows_ = 0, length_ = 0, closed_ = 0;
  int levels_ = 0;
};

}  // namespace treadle::run
