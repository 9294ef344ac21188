// Reverse-mode differentiation of a score mod.
//
// In: a score mod. Out: the joint graph. Gradients flow from the output to the leaves. Each
// gradient carries the condition under which it flows at all (the sides of where() that were
// chosen), so that at the end a value that did not take part is dropped by a choice and never
// multiplied by zero. Read Deriver::run() first; the derivative of each operation is in
// passes/derivatives.cpp.
#include "passes/derive.h"

#include <algorithm>
#include <optional>

#include "base/compute_type.h"
#include "base/error.h"
#include "ir/builder.h"
#include "passes/derivatives.h"
#include "passes/simplify.h"

namespace treadle::passes {
namespace {

using ir::Contribution;
using ir::Graph;
using ir::Input;
using ir::Joint;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Type;

constexpr NodeId always = -1;

// A gradient and when it flows: a bool node, or always.
struct Flow {
  NodeId when = always;
  NodeId value = 0;
};

class Deriver {
 public:
  Deriver(const Graph& graph, const std::vector<std::string>& wanted)
      : graph_(graph), wanted_(wanted), active_(graph.size()), flows_(graph.size()) {}

  Joint run() {
    // Ids of the joint graph's builder begin with those of the forward graph, so no map is needed.
    make_.copy(graph_);
    find_active();
    push(graph_.output(), {always, make_.input(Input::grad)});

    NodeId score_grad = make_.real(0.0);
    for (NodeId id = graph_.size() - 1; id >= 0; --id) {
      if (flows_[id].empty()) continue;
      const Flow flow = total(flows_[id]);
      const Node& node = graph_[id];
      if (node.op == Op::input) {
        score_grad = settled(flow);
      } else if (node.op == Op::load) {
        contributions_.push_back({id, flow});
      } else if (node.op == Op::where) {
        push(node.operands[1], {also(flow.when, node.operands[0]), flow.value});
        push(node.operands[2],
             {also(flow.when, make_(Op::logical_not, NodeId{node.operands[0]})), flow.value});
      } else {
        const std::vector<NodeId> gradients = derivatives(make_, id, flow.value);
        for (std::size_t i = 0; i < gradients.size(); ++i) {
          if (gradients[i] >= 0) push(node.operands[i], {flow.when, gradients[i]});
        }
      }
    }
    return assemble(score_grad);
  }

 private:
  struct Read {
    NodeId load;
    Flow flow;
  };

  // Floats through which the score or a wanted buffer reaches the output. Integers carry no
  // gradient.
  void find_active() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      if (node.type != Type::real) continue;
      bool active = node.op == Op::input && node.input == Input::score;
      if (node.op == Op::load) {
        const std::string& name = graph_.slot(node.slot).name;
        active = std::ranges::find(wanted_, name) != wanted_.end();
      } else {
        for (const NodeId operand : node.operands) active |= active_[operand];
      }
      active_[id] = active;
    }
  }

  void push(NodeId to, Flow flow) {
    if (active_[to]) flows_[to].push_back(flow);
  }

  NodeId also(NodeId when, NodeId condition) {
    return when == always ? condition : make_(Op::logical_and, when, condition);
  }

  // The gradient as one value: zero where it does not flow.
  NodeId settled(Flow flow) {
    return flow.when == always ? flow.value
                               : make_(Op::where, flow.when, flow.value, make_.real(0.0));
  }

  struct Condition {
    NodeId outer;  // or always
    NodeId last;
  };
  Condition condition_of(NodeId when) const {
    if (make_[when].op != Op::logical_and) return {always, when};
    return {make_[when].operands[0], make_[when].operands[1]};
  }

  // The two sides of one where(): where it flows at all, one of them does.
  std::optional<Flow> as_choice(const Flow& a, const Flow& b) {
    if (a.when == always || b.when == always) return std::nullopt;
    const Condition yes = condition_of(a.when);
    const Condition no = condition_of(b.when);
    if (yes.outer != no.outer) return std::nullopt;
    const auto negates = [&](NodeId x, NodeId y) {
      return make_[x].op == Op::logical_not && make_[x].operands[0] == y;
    };
    if (negates(no.last, yes.last))
      return Flow{yes.outer, make_(Op::where, yes.last, a.value, b.value)};
    if (negates(yes.last, no.last))
      return Flow{yes.outer, make_(Op::where, no.last, b.value, a.value)};
    return std::nullopt;
  }

  // Gradients that arrive on several ways add up; those that flow under one condition keep it.
  Flow total(const std::vector<Flow>& flows) {
    Flow sum = flows[0];
    for (std::size_t i = 1; i < flows.size(); ++i) {
      const Flow& next = flows[i];
      if (next.when == sum.when) {
        sum.value = make_(Op::add, sum.value, next.value);
        continue;
      }
      if (const auto choice = as_choice(sum, next)) {
        sum = *choice;
        continue;
      }
      const NodeId value = make_(Op::add, settled(sum), settled(next));
      const bool somewhere_always = sum.when == always || next.when == always;
      sum = {somewhere_always ? always : make_(Op::logical_or, sum.when, next.when), value};
    }
    return sum;
  }

  Joint assemble(NodeId score_grad) {
    Joint joint;
    std::vector<NodeId> outputs{score_grad};
    const auto add = [&](NodeId id) {
      outputs.push_back(id);
      return static_cast<int>(outputs.size() - 1);
    };
    std::ranges::reverse(contributions_);  // in the order in which the function reads
    for (const Read& read : contributions_) {
      const Node& node = graph_[read.load];
      Contribution contribution;
      contribution.slot = graph_.slot(node.slot);
      contribution.when = add(read.flow.when == always ? make_.boolean(true) : read.flow.when);
      contribution.value = add(read.flow.value);
      for (const NodeId index : node.operands) contribution.index.push_back(add(index));
      joint.contributions.push_back(std::move(contribution));
    }
    joint.graph = simplify(make_.finish(outputs));
    return joint;
  }

  const Graph& graph_;
  const std::vector<std::string>& wanted_;
  ir::Builder make_;
  ir::PerNode<bool> active_;
  ir::PerNode<std::vector<Flow>> flows_;
  std::vector<Read> contributions_;
};

}  // namespace

ir::Joint derive(const ir::Graph& score_mod, const std::vector<std::string>& wanted) {
  for (const std::string& name : wanted) {
    const ir::Slot* slot = score_mod.find_slot(name);
    if (slot == nullptr) base::fail("gradients: the score mod reads no capture \"{}\"", name);
    if (!is_float(slot->dtype)) {
      base::fail("gradients: capture \"{}\" holds {}; only floats have gradients", name,
                 name_of(slot->dtype));
    }
    if (!base::holds_gradients(slot->dtype)) {
      base::fail("gradients: capture \"{}\" holds {}; gradients need f64, f32, bf16 or f16", name,
                 name_of(slot->dtype));
    }
  }
  if (score_mod.output_type() != ir::Type::real)
    base::internal_error("derive: the score mod is not a float");
  return Deriver(score_mod, wanted).run();
}

}  // namespace treadle::passes
