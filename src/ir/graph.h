// A Graph: one or more expressions over (score, b, h, q, kv) and captured buffers, as a list of
// nodes.
//
// A graph is immutable and canonical: operands come before their users, no two nodes are equal,
// every node is needed by an output, and the order depends on the outputs alone. So two graphs mean
// the same expression tree iff they are ==, and hash() is the same in every run. Graphs are made by
// ir::Builder.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "ir/op.h"
#include "ir/per_node.h"

namespace treadle::ir {

// A captured buffer as a graph knows it. Memory is bound to it at the call; rank 0 is a run-time
// scalar.
struct Slot {
  std::string name;
  DType dtype = DType::f32;
  int rank = 0;

  bool operator==(const Slot&) const = default;
};

struct Node {
  Op op = Op::constant;
  Type type = Type::real;
  Input input = Input::score;    // Op::input
  std::int32_t slot = -1;        // Op::load
  std::uint64_t bits = 0;        // Op::constant: the value's bits; see the accessors
  std::vector<NodeId> operands;  // Op::load: one index per dimension

  [[nodiscard]] double real() const { return std::bit_cast<double>(bits); }
  [[nodiscard]] std::int64_t integer() const { return static_cast<std::int64_t>(bits); }
  [[nodiscard]] bool boolean() const { return bits != 0; }

  bool operator==(const Node&) const = default;
};

// For hash tables of nodes. Graph::hash() is the one that is the same in every version.
struct NodeHash {
  std::size_t operator()(const Node& node) const;
};

// The only NaN among constants: payloads carry no meaning and would make equal graphs differ.
inline constexpr double the_nan = std::numeric_limits<double>::quiet_NaN();

// Never changes, so copies share what they hold.
class Graph {
 public:
  Graph() : Graph({}, {}, {}) {}
  // For Builder and for tests of verify; anyone else asks a Builder.
  Graph(std::vector<Node> nodes, std::vector<Slot> slots, std::vector<NodeId> outputs)
      : parts_(std::make_shared<const Parts>(
            Parts{PerNode<Node>(std::move(nodes)), std::move(slots), std::move(outputs)})) {}

  // Moving would leave nothing behind; copying is as cheap.
  Graph(const Graph&) = default;
  Graph& operator=(const Graph&) = default;

  [[nodiscard]] NodeId size() const { return parts_->nodes.size(); }
  [[nodiscard]] const Node& operator[](NodeId id) const { return parts_->nodes[id]; }
  [[nodiscard]] std::span<const Node> nodes() const { return parts_->nodes.values(); }
  [[nodiscard]] std::span<const Slot> slots() const { return parts_->slots; }
  [[nodiscard]] const Slot& slot(std::int32_t index) const {
    return parts_->slots[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::span<const NodeId> outputs() const { return parts_->outputs; }
  [[nodiscard]] NodeId output(int i = 0) const {
    return parts_->outputs[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] Type output_type() const { return (*this)[output()].type; }

  // Does any output depend on this input?
  [[nodiscard]] bool uses(Input input) const;
  [[nodiscard]] const Slot* find_slot(std::string_view name) const;

  [[nodiscard]] base::Hash hash() const { return key().hash(); }
  [[nodiscard]] base::Key key() const;
  bool operator==(const Graph& other) const {
    return parts_ == other.parts_ || *parts_ == *other.parts_;
  }

 private:
  struct Parts {
    PerNode<Node> nodes;
    std::vector<Slot> slots;  // in the order in which the nodes first read them
    std::vector<NodeId> outputs;

    bool operator==(const Parts&) const = default;
  };
  std::shared_ptr<const Parts> parts_;  // never null
};

}  // namespace treadle::ir
