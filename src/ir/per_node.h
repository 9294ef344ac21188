// A value for every node of a graph, found by the node's number.
//
//   PerNode<bool> active(graph.size());                 all false
//   active[id] = active[node.operands[0]];
//
//   PerNode<NodeId> copies;                             grows with a builder
//   copies.push_back(make.copy(graph, id, copies));
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace treadle::ir {

// The number of a node in its graph or builder.
using NodeId = std::int32_t;

template <class T>
class PerNode {
 public:
  PerNode() = default;
  explicit PerNode(NodeId size, const T& value = T())
      : values_(static_cast<std::size_t>(size), value) {}
  explicit PerNode(std::vector<T> values) : values_(std::move(values)) {}

  // Of bools these are the proxies of std::vector<bool>: write `const bool x = active[id]`.
  [[nodiscard]] typename std::vector<T>::reference operator[](NodeId id) {
    return values_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] typename std::vector<T>::const_reference operator[](NodeId id) const {
    return values_[static_cast<std::size_t>(id)];
  }

  [[nodiscard]] NodeId size() const { return static_cast<NodeId>(values_.size()); }
  void push_back(T value) { values_.push_back(std::move(value)); }

  // In the order of the nodes.
  [[nodiscard]] auto begin() const { return values_.begin(); }
  [[nodiscard]] auto end() const { return values_.end(); }
  [[nodiscard]] const std::vector<T>& values() const { return values_; }

  bool operator==(const PerNode&) const = default;

 private:
  std::vector<T> values_;
};

}  // namespace treadle::ir
