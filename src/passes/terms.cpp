// A mask as a union of conjunctions, grouped by their congruences and quotients, made disjoint.
//
// In: a mask. Out: its terms. Read terms() first.
//
//   union of conjunctions    expand(): and, or, not, where, comparisons with min and max
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

namespace treadle::passes {
namespace {

using ir::NodeId;
using ir::Op;

// All literals are true, each is a node of the builder.
using Conjunction = std::set<NodeId>;
using Union = std::vector<Conjunction>;

constexpr std::size_t most_conjunctions = 24, most_literals = 24;

// By the expression, not by when it was made, so that the way a mask is written does not show.
using Rank = std::pair<std::uint64_t, std::uint64_t>;

// Per term its conjunctions, and of each the ranks of its literals.
using Shape = std::vector<std::set<std::set<Rank>>>;

class Splitter {
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
  std::optional<Union> expand(NodeId id, bool negated);
  std::optional<Union> expand_comparison(Op op, NodeId a, NodeId b);
  std::optional<Union> all_of(std::optional<Union> a, std::optional<Union> b) const;
  static std::optional<Union> any_of(std::optional<Union> a, std::optional<Union> b);
  Union literal(NodeId id) const { return {{id}}; }
  NodeId negation(NodeId literal);
  [[nodiscard]] Union without_redundant(Union all);

  // The congruences and quotients of q or kv that a conjunction has, as nodes.
  std::set<NodeId> regularity(const Conjunction& conjunction);
  const std::set<NodeId>& regularity(NodeId id);
  bool depends(NodeId id);

  Rank rank(NodeId id);
  // The same for every way to give its numbers, as scalars or as constants.
  Rank rank_with_scalars(NodeId id) { return rank_of(bound(id)); }
  ir::Graph bound(NodeId id);
  static Rank rank_of(const ir::Graph& graph) { return {graph.hash().high, graph.hash().low}; }
  void note_shape(const std::vector<Union>& groups);
  std::vector<NodeId> ordered(const Conjunction& conjunction);
  std::vector<Rank> ranks(const Conjunction& conjunction);

  std::vector<Union> groups(const Union& all);
  // A conjunction without what earlier groups have, as a node; nothing if nothing is left.
  std::optional<NodeId> disjoint(const Conjunction& conjunction, std::span<const Union> earlier);
  NodeId joined(Op op, std::span<const NodeId> parts);

  const ir::Graph& mask_;
  std::span<const ConstView> memory_;
  ir::Builder make_;
  NodeId root_;
  std::map<NodeId, std::set<NodeId>> regularities_;
  std::map<NodeId, bool> depends_;
  std::map<NodeId, Rank> ranks_;
  Shape shape_;
};

Op flipped(Op op) {  // not (a op b)
  switch (op) {
    case Op::lt: return Op::ge;
    case Op::le: return Op::gt;
    case Op::gt: return Op::le;
    case Op::ge: return Op::lt;
    case Op::eq: return Op::ne;
    default: return Op::eq;
  }
}

// The memory of a graph's slots, which are some of the mask's.
std::vector<ConstView> memory_of(const ir::Graph& graph, const ir::Graph& mask,
                                 std::span<const ConstView> memory) {
  std::vector<ConstView> own;
  for (const ir::Slot& slot : graph.slots()) {
    const auto found = std::ranges::find(mask.slots(), slot.name, &ir::Slot::name);
    own.push_back(memory[static_cast<std::size_t>(found - mask.slots().begin())]);
  }
  return own;
}

bool compares(const ir::Node& node) { return ir::info(node.op).rule == ir::Rule::comparison; }

std::optional<Union> Splitter::any_of(std::optional<Union> a, std::optional<Union> b) {
  if (!a || !b) return {};
  a->insert(a->end(), b->begin(), b->end());
  if (a->size() > most_conjunctions) return {};
  return a;
}

std::optional<Union> Splitter::all_of(std::optional<Union> a, std::optional<Union> b) const {
  if (!a || !b) return {};
  Union product;
  for (const Conjunction& x : *a) {
    for (const Conjunction& y : *b) {
      Conjunction both = x;
      both.insert(y.begin(), y.end());
      if (both.size() > most_literals || product.size() == most_conjunctions) return {};
      product.push_back(std::move(both));
    }
  }
  return product;
}

std::optional<Union> Splitter::expand(NodeId id, bool negated) {
  const ir::Node node = make_[id];
  const auto part = [&](std::size_t i, bool negate) { return expand(node.operands[i], negate); };
  switch (node.op) {
    case Op::constant: return node.boolean() != negated ? Union{{}} : Union{};
    case Op::logical_not: return part(0, !negated);
    case Op::logical_and:
    case Op::logical_or: {
      const bool conjunction = (node.op == Op::logical_and) != negated;
      return conjunction ? all_of(part(0, negated), part(1, negated))
                         : any_of(part(0, negated), part(1, negated));
    }
    case Op::where:
      return any_of(all_of(part(0, false), part(1, negated)),
                    all_of(part(0, true), part(2, negated)));
    default: break;
  }
  const bool of_integers = compares(node) && make_.type(node.operands[0]) == ir::Type::integer;
  if (!of_integers) return literal(negated ? make_(Op::logical_not, id) : id);
  return expand_comparison(negated ? flipped(node.op) : node.op, node.operands[0],
                           node.operands[1]);
}

// a op b of integers. Less and at most only, so that q >= kv and kv <= q are one.
std::optional<Union> Splitter::expand_comparison(Op op, NodeId a, NodeId b) {
  if (op == Op::gt || op == Op::ge) {
    std::swap(a, b);
    op = op == Op::gt ? Op::lt : Op::le;
  }
  if (op == Op::lt || op == Op::le) {
    const ir::Node left = make_[a], right = make_[b];
    const auto both = [&](const ir::Node& node, bool conjunction, const auto& with) {
      auto first =
          expand_comparison(op, with(node.operands[0]).first, with(node.operands[0]).second);
      auto second =
          expand_comparison(op, with(node.operands[1]).first, with(node.operands[1]).second);
      return conjunction ? all_of(std::move(first), std::move(second))
                         : any_of(std::move(first), std::move(second));
    };
    if (left.op == Op::min || left.op == Op::max)
      return both(left, left.op == Op::max, [&](NodeId x) { return std::pair(x, b); });
    if (right.op == Op::min || right.op == Op::max)
      return both(right, right.op == Op::min, [&](NodeId x) { return std::pair(a, x); });
  } else if (rank(b) < rank(a)) {
    std::swap(a, b);
  }
  return literal(make_(op, a, b));
}

NodeId Splitter::negation(NodeId literal) {
  const ir::Node node = make_[literal];
  if (node.op == Op::logical_not) return node.operands[0];
  if (!compares(node) || make_.type(node.operands[0]) != ir::Type::integer)
    return make_(Op::logical_not, literal);
  // As expand_comparison() makes them.
  if (node.op == Op::lt) return make_(Op::le, node.operands[1], node.operands[0]);
  if (node.op == Op::le) return make_(Op::lt, node.operands[1], node.operands[0]);
  return make_(flipped(node.op), node.operands[0], node.operands[1]);
}

// No contradictions, nothing that another one implies, nothing twice.
Union Splitter::without_redundant(Union all) {
  std::erase_if(all, [&](const Conjunction& conjunction) {
    return std::ranges::any_of(
        conjunction, [&](NodeId literal) { return conjunction.contains(negation(literal)); });
  });
  std::ranges::sort(all, {}, [](const Conjunction& c) { return c.size(); });
  Union kept;
  for (const Conjunction& conjunction : all) {
    if (std::ranges::none_of(kept, [&](const Conjunction& weaker) {
          return std::ranges::includes(conjunction, weaker);
        }))
      kept.push_back(conjunction);
  }
  std::ranges::sort(kept, {}, [&](const Conjunction& c) { return ranks(c); });
  return kept;
}

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

Rank Splitter::rank(NodeId id) {
  const auto known = ranks_.find(id);
  if (known != ranks_.end()) return known->second;
  return ranks_[id] = rank_of(make_.finish({id}));
}

ir::Graph Splitter::bound(NodeId id) {
  const ir::Graph own = make_.finish({id});
  return with_scalars(own, memory_of(own, mask_, memory_)).value_or(own);
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

std::vector<Rank> Splitter::ranks(const Conjunction& conjunction) {
  std::vector<Rank> all;
  for (const NodeId literal : conjunction) all.push_back(rank(literal));
  std::ranges::sort(all);
  return all;
}

std::vector<NodeId> Splitter::ordered(const Conjunction& conjunction) {
  std::vector<NodeId> all(conjunction.begin(), conjunction.end());
  std::ranges::sort(all, {}, [&](NodeId literal) { return rank(literal); });
  return all;
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
  const std::vector<ConstView> known_memory = memory_of(*known, mask, memory);
  Splitter of_known(*known, known_memory);
  auto found = of_known.split();
  if (!found) return {mask};
  const std::optional<ir::Graph> divided = with_scalars(mask, memory, Scalars::divisors);
  if (!divided || divided->hash() == known->hash()) return std::move(*found);
  const std::vector<ConstView> divided_memory = memory_of(*divided, mask, memory);
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
