// Checks that a graph is legal.
//
// In: a graph. Out: nothing, or an InternalError that says which rule which node breaks. Read
// check_node() first.
#include "ir/verify.h"

#include <bit>
#include <cmath>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "ir/print.h"

namespace treadle::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    for (NodeId id = 0; id < graph_.size(); ++id) check_node(id);
    check_slots();
    check_outputs();
    check_twins();
  }

 private:
  [[noreturn]] void fail(NodeId id, std::string_view rule) const {
    base::internal_error("verify: node %{}: {}\n{}", id, rule, to_listing(graph_));
  }

  [[noreturn]] void fail(std::string_view rule) const {
    base::internal_error("verify: {}\n{}", rule, to_listing(graph_));
  }

  void check_slots() const {
    std::set<std::string> names;
    for (const Slot& slot : graph_.slots()) {
      if (!names.insert(slot.name).second) fail("two slots have one name");
    }
    std::int32_t read = 0;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (graph_[id].slot > read)
        fail(id, "reads a slot before the slots that stand in front of it");
      if (graph_[id].slot == read) ++read;
    }
    if (read != static_cast<std::int32_t>(graph_.slots().size())) fail("a slot that no node reads");
  }

  Type type(NodeId id, std::size_t operand) const {
    return graph_[graph_[id].operands[operand]].type;
  }

  bool all_operands(NodeId id, Type wanted, std::size_t first = 0) const {
    for (std::size_t i = first; i < graph_[id].operands.size(); ++i) {
      if (type(id, i) != wanted) return false;
    }
    return true;
  }

  void check_node(NodeId id) const {
    const Node& node = graph_[id];
    const OpInfo& row = info(node.op);
    for (const NodeId operand : node.operands) {
      if (operand < 0 || operand >= id) fail(id, "an operand does not come before its user");
    }
    if (row.arity >= 0 && static_cast<int>(node.operands.size()) != row.arity)
      fail(id, "wrong number of operands");
    if ((node.op != Op::load && node.slot != -1) || (node.op != Op::constant && node.bits != 0) ||
        (node.op != Op::input && node.input != Node().input)) {
      fail(id, "holds a slot, a value or an input that its operation does not have");
    }
    if (!types_fit(id, row.rule))
      fail(id, "operand or result types break the rule of the operation");
    if (node.op == Op::floor_div || node.op == Op::mod) {
      const Node& divisor = graph_[node.operands[1]];
      if (divisor.op == Op::constant && divisor.integer() == 0)
        fail(id, "division by the constant 0");
    }
  }

  bool types_fit(NodeId id, Rule rule) const {
    const Node& node = graph_[id];
    switch (rule) {
      case Rule::leaf: return leaf_fits(id);
      case Rule::arithmetic: return node.type != Type::boolean && all_operands(id, node.type);
      case Rule::real:
      case Rule::rounding: return node.type == Type::real && all_operands(id, Type::real);
      case Rule::integer: return node.type == Type::integer && all_operands(id, Type::integer);
      case Rule::comparison:
        return node.type == Type::boolean && type(id, 0) != Type::boolean &&
               all_operands(id, type(id, 0));
      case Rule::logical: return node.type == Type::boolean && all_operands(id, Type::boolean);
      case Rule::test: return node.type == Type::boolean && all_operands(id, Type::real);
      case Rule::choice: return type(id, 0) == Type::boolean && all_operands(id, node.type, 1);
      case Rule::conversion: {
        const Type wanted = node.op == Op::to_float ? Type::real
                            : node.op == Op::to_int ? Type::integer
                                                    : Type::boolean;
        return node.type == wanted && type(id, 0) != wanted;
      }
    }
    return false;
  }

  static bool constant_fits(const Node& node) {
    switch (node.type) {
      case Type::boolean: return node.bits <= 1;
      case Type::integer: return true;
      case Type::real:
        return !std::isnan(node.real()) || node.bits == std::bit_cast<std::uint64_t>(the_nan);
    }
    return false;
  }

  bool leaf_fits(NodeId id) const {
    const Node& node = graph_[id];
    if (node.op == Op::input) return node.type == type_of(node.input);
    if (node.op == Op::constant) return constant_fits(node);
    if (node.slot < 0 || node.slot >= static_cast<std::int32_t>(graph_.slots().size())) {
      fail(id, "a load of a slot that is not there");
    }
    const Slot& slot = graph_.slot(node.slot);
    if (static_cast<int>(node.operands.size()) != slot.rank)
      fail(id, "a load with another rank than its slot");
    return node.type == type_of(slot.dtype) && all_operands(id, Type::integer);
  }

  void check_outputs() const {
    if (graph_.outputs().empty()) fail("no outputs");
    PerNode<bool> used(graph_.size());
    for (const NodeId output : graph_.outputs()) {
      if (output < 0 || output >= graph_.size()) fail("an output that is not there");
      used[output] = true;
    }
    for (NodeId id = graph_.size() - 1; id >= 0; --id) {
      if (!used[id]) fail(id, "no output needs it");
      for (const NodeId operand : graph_[id].operands) used[operand] = true;
    }
  }

  void check_twins() const {
    std::unordered_set<Node, NodeHash> seen;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!seen.insert(graph_[id]).second) fail(id, "the same node stands twice");
    }
  }

  const Graph& graph_;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace treadle::ir
