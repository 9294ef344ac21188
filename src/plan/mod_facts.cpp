// Proofs about a mod from the bounds of its values over all points of a call.
//
// In: a graph, its captures and the extent of a call. Out: ModFacts. Read find_facts() first.
#include "plan/mod_facts.h"

#include <algorithm>

#include "passes/bounds.h"

namespace treadle::plan {
namespace {

// Whether the contents of captures could prove more.
bool reads_integers(const ir::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const ir::Node& node) {
    return node.op == ir::Op::load && node.type != ir::Type::real;
  });
}

}  // namespace

ModFacts find_facts(const ir::Graph& graph, const std::vector<ConstView>& memory,
                    const layout::Extent& extent, const layout::Order& order) {
  ModFacts facts;
  facts.consecutive =
      order.kind == layout::Order::Kind::identity || order.kind == layout::Order::Kind::blocks;
  for (const ConstView& view : memory)
    facts.unit_stride.push_back(view.rank() == 0 || view.stride(view.rank() - 1) == 1);

  passes::Box box;
  box.b.count = extent.batch;
  box.h.count = extent.heads;
  box.q = {.low = extent.queries.begin, .count = extent.queries.count()};
  box.kv = {.low = extent.keys.begin, .count = extent.keys.count()};
  passes::CaptureTables tables(memory);
  const auto prove = [&](passes::Contents contents) {
    passes::Bounds bounds(graph, tables, contents);
    bounds.evaluate(box);
    facts.narrow = bounds.fits_32_bits();
    facts.checked = !bounds.never_poisoned();
  };
  prove(passes::Contents::ignored);
  if ((!facts.narrow || facts.checked) && reads_integers(graph)) prove(passes::Contents::scanned);
  return facts;
}

base::Hash hash(const ModFacts& facts) {
  // A binding for each member: one that is added and forgotten here does not compile.
  const auto& [narrow, checked, consecutive, unit_stride] = facts;
  base::Hasher hasher;
  hasher.add(narrow).add(checked).add(consecutive).add(unit_stride.size());
  for (const bool unit : unit_stride) hasher.add(unit);
  return hasher.finish();
}

}  // namespace treadle::plan
