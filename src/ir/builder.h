// Builder: makes graphs.
//
//   Builder make;
//   NodeId slope = make.load({"slopes", DType::f32, 1}, {make.input(Input::h)});
//   NodeId out = make(Op::add, make.input(Input::score), slope);
//   Graph graph = make.finish({out});
//
// Equal nodes are made once. Operands are promoted (bool to int to float) as the operation's rule
// asks; what cannot be promoted is a treadle::Error that names the operation and the types. Nothing
// is simplified here.
#pragma once

#include <concepts>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace treadle::ir {

class Builder {
 public:
  NodeId input(Input input);
  NodeId real(double value);
  NodeId integer(std::int64_t value);
  NodeId boolean(bool value);

  // Reads a captured buffer. One name is one buffer: its dtype and rank must be the same
  // everywhere.
  NodeId load(const Slot& slot, std::vector<NodeId> indices);

  NodeId apply(Op op, std::vector<NodeId> operands);
  template <std::same_as<NodeId>... Ids>
  NodeId operator()(Op op, Ids... operands) {
    return apply(op, {operands...});
  }

  // The value in another type. A bool or integer constant gives a constant if a wider type holds it
  // exactly.
  NodeId convert(NodeId id, Type type);

  // Copies a node of another graph whose operands have been copied already; `to` maps its ids to
  // ours.
  NodeId copy(const Graph& from, NodeId id, const PerNode<NodeId>& to);
  // Copies every node of another graph. The result maps its ids to ours.
  PerNode<NodeId> copy(const Graph& from);

  // The reference is good until the next node is made.
  [[nodiscard]] const Node& operator[](NodeId id) const { return nodes_[id]; }
  [[nodiscard]] NodeId size() const { return nodes_.size(); }
  [[nodiscard]] Type type(NodeId id) const { return (*this)[id].type; }
  [[nodiscard]] const Slot& slot(std::int32_t index) const {
    return slots_[static_cast<std::size_t>(index)];
  }

  // The canonical graph of these outputs. The builder may go on to make more.
  [[nodiscard]] Graph finish(const std::vector<NodeId>& outputs) const;

 private:
  NodeId intern(Node node);
  std::int32_t slot_index(const Slot& slot);
  void promote(Op op, std::vector<NodeId>& operands);

  PerNode<Node> nodes_;
  std::vector<Slot> slots_;
  std::unordered_map<Node, NodeId, NodeHash> known_;
};

// Slot names are what the text form can spell: a letter or underscore, then letters, digits,
// underscores; no input and no operation has it. Throws treadle::Error otherwise.
void check_slot_name(std::string_view name);

}  // namespace treadle::ir
