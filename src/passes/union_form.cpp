// Bools taken apart at and, or, not and where, and comparisons at min and max. Read expand() first.
#include "passes/union_form.h"

#include <algorithm>

#include "ir/op.h"

namespace treadle::passes {
namespace {

using ir::NodeId;
using ir::Op;

constexpr std::size_t most_conjunctions = 24, most_literals = 24;

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

bool compares(const ir::Node& node) { return ir::info(node.op).rule == ir::Rule::comparison; }

}  // namespace

std::optional<Union> UnionForm::any_of(std::optional<Union> a, std::optional<Union> b) {
  if (!a || !b) return {};
  a->insert(a->end(), b->begin(), b->end());
  if (a->size() > most_conjunctions) return {};
  return a;
}

std::optional<Union> UnionForm::all_of(std::optional<Union> a, std::optional<Union> b) {
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

std::optional<Union> UnionForm::expand(NodeId id, bool negated) {
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
  if (!of_integers) return Union{{negated ? make_(Op::logical_not, id) : id}};
  return expand_comparison(negated ? flipped(node.op) : node.op, node.operands[0],
                           node.operands[1]);
}

// a op b of integers. Less and at most only, so that q >= kv and kv <= q are one.
std::optional<Union> UnionForm::expand_comparison(Op op, NodeId a, NodeId b) {
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
  return Union{{make_(op, a, b)}};
}

NodeId UnionForm::negation(NodeId literal) {
  const ir::Node node = make_[literal];
  if (node.op == Op::logical_not) return node.operands[0];
  if (!compares(node) || make_.type(node.operands[0]) != ir::Type::integer)
    return make_(Op::logical_not, literal);
  // As expand_comparison() makes them.
  if (node.op == Op::lt) return make_(Op::le, node.operands[1], node.operands[0]);
  if (node.op == Op::le) return make_(Op::lt, node.operands[1], node.operands[0]);
  return make_(flipped(node.op), node.operands[0], node.operands[1]);
}

Union UnionForm::without_redundant(Union all) {
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

Rank UnionForm::rank(NodeId id) {
  const auto known = ranks_.find(id);
  if (known != ranks_.end()) return known->second;
  return ranks_[id] = rank_of(make_.finish({id}));
}

std::vector<Rank> UnionForm::ranks(const Conjunction& conjunction) {
  std::vector<Rank> all;
  for (const NodeId literal : conjunction) all.push_back(rank(literal));
  std::ranges::sort(all);
  return all;
}

std::vector<NodeId> UnionForm::ordered(const Conjunction& conjunction) {
  std::vector<NodeId> all(conjunction.begin(), conjunction.end());
  std::ranges::sort(all, {}, [&](NodeId literal) { return rank(literal); });
  return all;
}

}  // namespace treadle::passes
