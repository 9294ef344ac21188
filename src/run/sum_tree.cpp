// Leaves joined to nodes as soon as they are complete. Read close_leaf() first.
#include "run/sum_tree.h"

#include <algorithm>
#include <utility>

namespace treadle::run {

template <class F>
void SumTree<F>::carve(Carver& carver, std::int64_t rows, std::int64_t length,
                       std::int64_t leaves) {
  rows_ = rows;
  length_ = length;
  levels_ = plan::tree_levels(leaves);
  for (int level = 0; level <= levels_; ++level) {
    Node& node = nodes_[static_cast<std::size_t>(level)];
    node.sums = carver.take<F>(rows * length);
    node.touched = carver.take<std::uint8_t>(rows);
  }
}

template <class F>
void SumTree<F>::clear() {
  closed_ = 0;
  for (int level = 0; level <= levels_; ++level) {
    Node& node = nodes_[static_cast<std::size_t>(level)];
    std::fill_n(node.touched, rows_, std::uint8_t{0});
    node.begin = node.end = 0;
  }
}

template <class F>
void SumTree<F>::touch_new(std::int64_t begin, std::int64_t end) {
  Node& node = nodes_[0];
  for_stretches(node.touched, begin, end, [&](std::int64_t first, std::int64_t past, bool known) {
    if (known) return;
    std::fill(node.sums + first * length_, node.sums + past * length_, F{0});
  });
  std::fill(node.touched + begin, node.touched + end, std::uint8_t{1});
  if (node.begin == node.end) {
    node.begin = begin;
    node.end = end;
  } else {
    node.begin = std::min(node.begin, begin);
    node.end = std::max(node.end, end);
  }
}

template <class F>
void SumTree<F>::join_rows(Node& into, Node& from, std::int64_t begin, std::int64_t end) {
  const auto add = [&](std::int64_t first, std::int64_t past, bool known) {
    F* to = into.sums + first * length_;
    const F* given = from.sums + first * length_;
    const std::int64_t count = (past - first) * length_;
    if (known) {
      for (std::int64_t i = 0; i < count; ++i) to[i] += given[i];
    } else {
      std::copy_n(given, count, to);
    }
  };
  for_stretches(from.touched, begin, end, [&](std::int64_t first, std::int64_t past, bool given) {
    if (!given) return;
    for_stretches(into.touched, first, past, add);
    std::fill(into.touched + first, into.touched + past, std::uint8_t{1});
  });
  std::fill(from.touched + begin, from.touched + end, std::uint8_t{0});
  into.begin = std::min(into.begin, begin);
  into.end = std::max(into.end, end);
}

template <class F>
void SumTree<F>::join(Node& into, Node& from) {
  if (from.begin == from.end) return;
  if (into.begin == into.end) return std::swap(into, from);
  join_rows(into, from, from.begin, from.end);
  from.begin = from.end = 0;
}

// The first leaf of a node becomes the node as a whole.
template <class F>
void SumTree<F>::close_rows(std::int64_t begin, std::int64_t end) {
  if (levels_ > 0 && nodes_[1].begin < nodes_[1].end) join_rows(nodes_[1], nodes_[0], begin, end);
}

template <class F>
void SumTree<F>::close_leaf() {
  ++closed_;
  std::int64_t number = closed_;
  for (int level = 0; level < levels_; ++level) {
    const auto at = static_cast<std::size_t>(level);
    join(nodes_[at + 1], nodes_[at]);
    if (number % plan::tree_children != 0) break;  // the node above waits for more
    number /= plan::tree_children;
  }
}

template <class F>
void SumTree<F>::skip(std::int64_t leaves) {
  const auto is_empty = [](const Node& node) { return node.begin == node.end; };
  // With nothing to join they only count.
  if (std::ranges::all_of(nodes_, is_empty)) {
    closed_ += leaves;
    return;
  }
  for (std::int64_t i = 0; i < leaves; ++i) close_leaf();
}

template <class F>
void SumTree<F>::close_piece(const plan::TreePiece& piece) {
  if (piece.level > 0) join(node(piece.level), node(0));
  closed_ = piece.leaves.end;
  std::int64_t size = 1;
  for (int level = 1; level < piece.level; ++level) size *= plan::tree_children;
  for (int level = std::max(piece.level, 1); level < levels_; ++level) {
    size *= plan::tree_children;
    if (closed_ % size != 0) break;
    join(node(level + 1), node(level));
  }
}

template <class F>
typename SumTree<F>::Node& SumTree<F>::join_all() {
  // Nodes of lower levels hold later leaves.
  for (std::size_t level = 0; level < static_cast<std::size_t>(levels_); ++level)
    join(nodes_[level + 1], nodes_[level]);
  return nodes_[static_cast<std::size_t>(levels_)];
}

template <class F>
F* SumTree<F>::finish() {
  const Node& root = join_all();
  for_stretches(root.touched, 0, rows_, [&](std::int64_t begin, std::int64_t end, bool known) {
    if (!known) std::fill(root.sums + begin * length_, root.sums + end * length_, F{0});
  });
  return root.sums;
}

template class SumTree<float>;
template class SumTree<double>;

}  // namespace treadle::run
