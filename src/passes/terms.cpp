// A mask as a union of conjunctions, grouped by their congruences and quotients, made disjoint.
//
// In: a mask. Out: its terms. Read terms() first.
//
//   union of conjunctions    union_form.h: and, or, not, where, comparisons with min and max
//   groups                   those with the same congruences and quotients, or fewer, together
//   order                    parts without any first, then quotients, then congruences
//   disjoint                 each conjunction without what earlier groups have
#include "passes/terms.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/hash.h"
#include "ir/builder.h"
#include "passes/scalars.h"
#include "passes/simplify.h"
#include "passes/union_form.h"

namespace treadle::passes {
namespace {

using ir::NodeId;
using ir::Op;

// Per term its conjunctions, and of each the ranks of its literals.
using Shape = std::vector<std::set<std::set<Rank>>>;

class Splitter : UnionForm {
 public:
  Splitter(const ir::Graph& mask, std::span<const ConstView> memory)
      : mask_(mask), memory_(memory) {
    const ir::PerNode<NodeId> own = make_.copy(mask);
    root_ = own[mask.output()];
  }

  // Nothing if the mask stays one term.
  std::optional<std::vector<ir::Graph>> split();
  // What the terms are made of, with the values of scalars; after split().
  [[nodiscard]] const Shape& shape() const { return shape_; }

 private:
  // The congruences and quotients of q or kv that a conjunction has, as nodes.
  std::set<NodeId> regularity(const Conjunction& conjunction);
  const std::set<NodeId>& regularity(NodeId id);
  bool depends(NodeId id);

  // The same for every way to give its numbers, as scalars or as constants.
  Rank rank_with_scalars(NodeId id) { return rank_of(bound(id)); }
  ir::Graph bound(NodeId id);
  void note_shape(const std::vector<Union>& groups);

  std::vector<Union> groups(const Union& all);
  // A conjunction without what earlier groups have, as a node; nothing if nothing is left.
  std::optional<NodeId> disjoint(const Conjunction& conjunction, std::span<const Union> earlier);
  NodeId joined(Op op, std::span<const NodeId> parts);

  const ir::Graph& mask_;
  std::span<const ConstView> memory_;
  NodeId root_;
  std::map<NodeId, std::set<NodeId>> regularities_;
  std::map<NodeId, bool> depends_;
  Shape shape_;
};

bool Splitter::depends(NodeId id) {
  const auto known = depends_.find(id);
  if (known != depends_.end()) return known->second;
  const ir::Node node = make_[id];
  const bool result =
      (node.op == Op::input && (node.input == ir::Input::q || node.input == ir::Input::kv)) ||
      std::ranges::any_of(node.operands, [&](NodeId operand) { return depends(operand); });
  return depends_[id] = result;
}

const std::set<NodeId>& Splitter::regularity(NodeId id) {
  const auto known = regularities_.find(id);
  if (known != regularities_.end()) return known->second;
  const ir::Node node = make_[id];
  std::set<NodeId> found;
  for (const NodeId operand : node.operands) {
    const std::set<NodeId>& inside = regularity(operand);
    found.insert(inside.begin(), inside.end());
  }
  if (divides(node.op) && make_[node.operands[1]].op == Op::constant && depends(node.operands[0]))
    found.insert(id);
  return regularities_[id] = std::move(found);
}

std::set<NodeId> Splitter::regularity(const Conjunction& conjunction) {
  std::set<NodeId> all;
  for (const NodeId literal : conjunction) {
    const std::set<NodeId>& one = regularity(literal);
    all.insert(one.begin(), one.end());
  }
  return all;
}

ir::Graph Splitter::bound(NodeId id) {
  const ir::Graph own = make_.finish({id});
  return with_scalars(own, memory_of(own, mask_.slots(), memory_)).value_or(own);
}

void Splitter::note_shape(const std::vector<Union>& groups) {
  for (const Union& group : groups) {
    auto& conjunctions = shape_.emplace_back();
    for (const Conjunction& conjunction : group) {
      std::set<Rank> literals;
      bool possible = true;
      for (const NodeId literal : conjunction) {
        const ir::Graph with_values = bound(literal);
        const ir::Node& node = with_values[with_values.output()];
        if (node.op != Op::constant) {
          literals.insert(rank_of(with_values));
        } else if (!node.boolean()) {
          possible = false;
        }
      }
      if (possible) conjunctions.insert(std::move(literals));
    }
  }
}

std::vector<Union> Splitter::groups(const Union& all) {
  std::map<std::set<NodeId>, Union> by_regularity;
  for (const Conjunction& conjunction : all)
    by_regularity[regularity(conjunction)].push_back(conjunction);

  // One whose regularity another one has too joins it, unless it has none.
  struct Group {
    std::set<NodeId> regularity;
    Union parts;
  };
  std::vector<Group> found;
  for (auto& [regular, parts] : by_regularity) found.push_back({regular, std::move(parts)});
  const auto place = [&](const Group& group) {
    bool congruence = false;
    std::vector<Rank> nodes;
    for (const NodeId node : group.regularity) {
      congruence |= make_[node].op == Op::mod || make_[node].op == Op::bit_and;
      nodes.push_back(rank_with_scalars(node));
    }
    std::ranges::sort(nodes);
    return std::tuple(!group.regularity.empty(), congruence, std::move(nodes));
  };
  std::ranges::sort(found, {}, place);
  const auto joins = [&](const Group& group, const Group& wider) {
    return !group.regularity.empty() && group.regularity.size() < wider.regularity.size() &&
           std::ranges::includes(wider.regularity, group.regularity);
  };
  const auto stays = [&](const Group& group) {
    return std::ranges::none_of(found, [&](const Group& other) { return joins(group, other); });
  };
  std::vector<Group> apart;
  std::ranges::copy_if(found, std::back_inserter(apart), stays);
  for (const Group& group : found) {
    if (stays(group)) continue;
    const auto first =
        std::ranges::find_if(apart, [&](const Group& wider) { return joins(group, wider); });
    first->parts.insert(first->parts.end(), group.parts.begin(), group.parts.end());
  }
  std::vector<Union> result;
  for (Group& group : apart) {
    if (result.size() == most_terms) {
      result.back().insert(result.back().end(), group.parts.begin(), group.parts.end());
    } else {
      result.push_back(std::move(group.parts));
    }
  }
  for (Union& parts : result)
    std::ranges::sort(parts, {}, [&](const Conjunction& c) { return ranks(c); });
  return result;
}

NodeId Splitter::joined(Op op, std::span<const NodeId> parts) {
  if (parts.empty()) return make_.boolean(op == Op::logical_and);
  NodeId all = parts.front();
  for (const NodeId part : parts.subspan(1)) all = make_(op, all, part);
  return all;
}

std::optional<NodeId> Splitter::disjoint(const Conjunction& conjunction,
                                         std::span<const Union> earlier) {
  Conjunction known = conjunction;
  std::vector<NodeId> choices;
  for (const Union& group : earlier) {
    for (const Conjunction& other : group) {
      std::vector<NodeId> ways;  // to be outside of it
      bool outside = false;
      for (const NodeId literal : ordered(other)) {
        if (known.contains(literal)) continue;
        const NodeId not_so = negation(literal);
        outside = outside || known.contains(not_so);
        ways.push_back(not_so);
      }
      if (outside) continue;
      if (ways.empty()) return {};
      if (ways.size() == 1) {
        known.insert(ways.front());
      } else {
        choices.push_back(joined(Op::logical_or, ways));
      }
    }
  }
  std::vector<NodeId> factors = ordered(known);
  factors.insert(factors.end(), choices.begin(), choices.end());
  return joined(Op::logical_and, factors);
}

std::optional<std::vector<ir::Graph>> Splitter::split() {
  std::optional<Union> all = expand(root_, false);
  if (!all) return {};
  const std::vector<Union> apart = groups(without_redundant(std::move(*all)));
  if (apart.size() < 2) return {};
  note_shape(apart);
  std::vector<ir::Graph> result;
  NodeId nodes = 0;
  for (std::size_t i = 0; i < apart.size(); ++i) {
    std::vector<NodeId> parts;
    for (const Conjunction& conjunction : apart[i])
      if (const auto part = disjoint(conjunction, std::span(apart).first(i)))
        parts.push_back(*part);
    if (parts.empty()) continue;
    result.push_back(simplify(make_.finish({joined(Op::logical_or, parts)})));
    nodes += result.back().size();
  }
  constexpr NodeId times_larger = 4, anyway = 64;
  if (result.size() < 2 || nodes > times_larger * mask_.size() + anyway) return {};
  return result;
}

}  // namespace

std::vector<ir::Graph> terms(const ir::Graph& mask, std::span<const ConstView> memory) {
  if (!may_have_terms(mask)) return {mask};
  const std::optional<ir::Graph> known = with_scalars(mask, memory);
  if (!known) return {mask};
  const std::vector<ConstView> known_memory = memory_of(*known, mask.slots(), memory);
  Splitter of_known(*known, known_memory);
  auto found = of_known.split();
  if (!found) return {mask};
  const std::optional<ir::Graph> divided = with_scalars(mask, memory, Scalars::divisors);
  if (!divided || divided->hash() == known->hash()) return std::move(*found);
  const std::vector<ConstView> divided_memory = memory_of(*divided, mask.slots(), memory);
  Splitter of_divided(*divided, divided_memory);
  auto open = of_divided.split();
  const bool same = open && open->size() == found->size() && of_divided.shape() == of_known.shape();
  return std::move(same ? *open : *found);
}

bool may_have_terms(const ir::Graph& mask) {
  for (ir::NodeId id = 0; id < mask.size(); ++id)
    if (divides(mask[id].op)) return true;
  return false;
}

}  // namespace treadle::passes
