// Proofs about a mod from the bounds of its values over all points of a call.
//
// In: a graph, its captures and the extent of a call. Out: ModFacts. Read find_facts() first.
#include "plan/mod_facts.h"

#include <algorithm>
#include <limits>

#include "passes/bounds.h"

namespace treadle::plan {
namespace {

// Whether the contents of captures could prove more.
bool reads_integers(const ir::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const ir::Node& node) {
    return node.op == ir::Op::load && node.type != ir::Type::real;
  });
}

bool fits_32_bits(const passes::IntegerRange& range) {
  return range.low >= std::numeric_limits<std::int32_t>::min() &&
         range.high <= std::numeric_limits<std::int32_t>::max();
}

// By load and dimension: whether the index may be outside when captures hold anything. `bounds` are
// those for any contents; they hold in 32 bits only where nothing wraps on the way.
Flags clamps_of(const ir::Graph& graph, const std::vector<ConstView>& memory,
                const passes::Bounds& bounds, bool narrow, ir::PerNode<bool>& holds) {
  Flags clamp;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    bool mine = !narrow || node.type != ir::Type::integer || fits_32_bits(bounds.of(id).integer);
    // An element is within its type's range wherever it was read.
    if (node.op != ir::Op::load)
      for (const ir::NodeId operand : node.operands) mine = mine && holds[operand];
    holds[id] = mine;
    if (node.op != ir::Op::load) continue;
    const ConstView& view = memory[static_cast<std::size_t>(node.slot)];
    for (int axis = 0; axis < view.rank(); ++axis) {
      const ir::NodeId index = node.operands[static_cast<std::size_t>(axis)];
      const passes::IntegerRange& range = bounds.of(index).integer;
      clamp.push_back(!holds[index] || range.low < 0 || range.high >= view.size(axis));
    }
  }
  return clamp;
}

}  // namespace

FactFinder::FactFinder(const ir::Graph& graph)
    : graph_(graph),
      reads_integers_(reads_integers(graph)),
      tables_(std::vector<ConstView>()),
      any_(graph, tables_, passes::Contents::ignored),
      seen_(graph, tables_, passes::Contents::scanned),
      holds_(graph.size()) {}

ModFacts FactFinder::find(const std::vector<ConstView>& memory, const layout::Extent& extent,
                          const layout::Order& order) {
  ModFacts facts;
  facts.consecutive =
      order.kind == layout::Order::Kind::identity || order.kind == layout::Order::Kind::blocks;
  for (const ConstView& view : memory)
    facts.unit_stride.push_back(view.rank() == 0 || view.stride(view.rank() - 1) == 1);

  passes::Box box;
  box.b = {.low = extent.first_b, .count = extent.batch};
  box.h = {.low = extent.first_h, .count = extent.heads};
  box.q = {.low = extent.queries.begin, .count = extent.queries.count()};
  box.kv = {.low = extent.keys.begin, .count = extent.keys.count()};
  tables_.bind(memory);
  any_.forget();
  any_.evaluate(box);
  facts.narrow = any_.fits_32_bits();
  if (any_.never_poisoned()) facts.reads = Reads::proven;
  if ((facts.narrow && facts.reads == Reads::proven) || !reads_integers_) return facts;

  seen_.forget();
  seen_.evaluate(box);
  const bool narrower = !facts.narrow && seen_.fits_32_bits();
  if (facts.reads == Reads::proven && !narrower) return facts;
  facts.narrow = facts.narrow || narrower;
  if (!seen_.never_poisoned()) return facts;
  facts.reads = Reads::clamped;
  facts.clamp = clamps_of(graph_, memory, any_, facts.narrow, holds_);
  return facts;
}

ModFacts find_facts(const ir::Graph& graph, const std::vector<ConstView>& memory,
                    const layout::Extent& extent, const layout::Order& order) {
  return FactFinder(graph).find(memory, extent, order);
}

base::Hash hash(const ModFacts& facts) {
  // A binding for each member: one that is added and forgotten here does not compile.
  const auto& [narrow, reads, consecutive, unit_stride, clamp] = facts;
  base::Hasher hasher;
  hasher.add(narrow).add(reads).add(consecutive);
  for (const Flags* flags : {&unit_stride, &clamp}) {
    hasher.add(flags->size());
    for (std::size_t i = 0; i < flags->size(); ++i) hasher.add((*flags)[i]);
  }
  return hasher.finish();
}

}  // namespace treadle::plan
