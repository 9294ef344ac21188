// Rewrite: tries rules on one node.
//
//   Rewrite rewrite(make, properties, node);
//   rewrite(i - 0, i);
//   rewrite(i - i, 0, sound(i));
//   if (rewrite.result()) return *rewrite.result();
//
// A rule applies if the node matches its first pattern and all conditions hold; then its second
// pattern is built. Only the first rule that applies does anything.
#pragma once

#include <array>
#include <bit>
#include <optional>
#include <tuple>
#include <vector>

#include "ir/builder.h"
#include "passes/fold.h"
#include "passes/match.h"
#include "passes/node_properties.h"

namespace treadle::passes::match {

class Rewrite {
 public:
  // The node's operands are nodes of the builder; it need not be one itself.
  Rewrite(ir::Builder& make, NodeProperties& properties, const ir::Node& node)
      : make_(make), properties_(properties), node_(node) {}

  template <class... Parts, class After, class... Conditions>
  void operator()(const Call<Parts...>& before, const After& after,
                  const Conditions&... conditions) {
    if (result_ || before.op != node_.op) return;
    found_.fill(nothing);
    if (matches(before, node_) && (conditions(*this) && ...)) result_ = built(part(after));
  }

  // What the rule that applied has built; nothing if none did.
  [[nodiscard]] const std::optional<ir::NodeId>& result() const { return result_; }

  // For conditions: what a letter stands for.
  [[nodiscard]] ir::NodeId id(Letter letter) const {
    return found_[static_cast<std::size_t>(letter.number)];
  }
  [[nodiscard]] const ir::Node& node(Letter letter) const { return make_[id(letter)]; }
  [[nodiscard]] NodeProperties& properties() const { return properties_; }

 private:
  static constexpr ir::NodeId nothing = -1;

  bool matches(const Letter& letter, ir::NodeId id) {
    const ir::Node& node = make_[id];
    if (letter.type && node.type != *letter.type) return false;
    if (letter.constant && node.op != ir::Op::constant) return false;
    ir::NodeId& found = found_[static_cast<std::size_t>(letter.number)];
    if (found == nothing) found = id;
    return found == id;
  }
  bool matches(const Number& number, ir::NodeId id) const {
    const ir::Node& node = make_[id];
    return node.op == ir::Op::constant && node.type == number.type && node.bits == number.bits;
  }
  template <class... Parts>
  bool matches(const Call<Parts...>& call, ir::NodeId id) {
    return matches(call, make_[id]);
  }
  template <class... Parts>
  bool matches(const Call<Parts...>& call, const ir::Node& node) {
    if (node.op != call.op) return false;
    std::size_t at = 0;
    return std::apply(
        [&](const auto&... parts) { return (matches(parts, node.operands[at++]) && ...); },
        call.parts);
  }

  ir::NodeId built(const Letter& letter) const { return id(letter); }
  ir::NodeId built(const Number& number) {
    switch (number.type) {
      case ir::Type::boolean: return make_.boolean(number.bits != 0);
      case ir::Type::integer: return make_.integer(static_cast<std::int64_t>(number.bits));
      case ir::Type::real: break;
    }
    return make_.real(std::bit_cast<double>(number.bits));
  }
  template <class... Parts>
  std::vector<ir::NodeId> built_parts(const Call<Parts...>& call) {
    return std::apply(
        [&](const auto&... parts) { return std::vector<ir::NodeId>{built(parts)...}; }, call.parts);
  }
  template <class... Parts>
  ir::NodeId built(const Call<Parts...>& call) {
    return make_.apply(call.op, built_parts(call));
  }
  template <class Operation>
  ir::NodeId built(const Folded<Operation>& folded) {
    const auto value = passes::fold(make_, folded.operation.op, built_parts(folded.operation));
    return value ? *value : built(folded.operation);
  }

  ir::Builder& make_;
  NodeProperties& properties_;
  const ir::Node& node_;
  std::array<ir::NodeId, letters> found_{};
  std::optional<ir::NodeId> result_;
};

// Conditions.
inline auto sound(Letter it) {
  return [it](const Rewrite& at) { return at.properties().sound(at.id(it)); };
}
inline auto never_negative(Letter it) {
  return [it](const Rewrite& at) { return at.properties().never_negative(at.id(it)); };
}
inline auto small(Letter it) {
  return [it](const Rewrite& at) { return at.properties().small(at.id(it)); };
}
inline auto varies(Letter it) {
  return [it](const Rewrite& at) { return at.node(it).op != ir::Op::constant; };
}
inline auto positive(Letter it) {
  return [it](const Rewrite& at) { return at.node(it).integer() > 0; };
}
inline auto negative(Letter it) {
  return [it](const Rewrite& at) { return at.node(it).integer() < 0; };
}

}  // namespace treadle::passes::match
