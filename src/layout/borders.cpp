// Solves comparisons for the key.
//
// In: comparisons and what is known of their operands over a box. Out: keys where they change.
#include "layout/borders.h"

#include <algorithm>

namespace treadle::layout {
namespace {

using ir::Op;
using passes::Variable;

constexpr auto index(Variable variable) { return static_cast<std::size_t>(variable); }

// Whether a comparison with this difference of its operands holds.
bool holds(Op op, std::int64_t difference) {
  switch (op) {
    case Op::eq: return difference == 0;
    case Op::ne: return difference != 0;
    case Op::lt: return difference < 0;
    case Op::le: return difference <= 0;
    case Op::gt: return difference > 0;
    default: return difference >= 0;
  }
}

// Where op(start + slope * t) changes, among t = 1 .. count - 1, as keys from `low` on.
void add_changes(std::vector<std::int64_t>& found, Op op, std::int64_t start, std::int64_t slope,
                 const passes::Axis& keys) {
  const std::int64_t root = -start / slope;  // within one of where it changes
  for (std::int64_t t = root - 1; t <= root + 2; ++t) {
    if (t < 1 || t >= keys.count) continue;
    if (holds(op, start + slope * (t - 1)) != holds(op, start + slope * t))
      found.push_back(keys.low + t);
  }
}

}  // namespace

std::vector<ir::NodeId> comparisons(const ir::Graph& mask) {
  std::vector<ir::NodeId> found;
  for (ir::NodeId id = 0; id < mask.size(); ++id) {
    const ir::Node& node = mask[id];
    if (ir::info(node.op).rule == ir::Rule::comparison &&
        mask[node.operands[0]].type == ir::Type::integer)
      found.push_back(id);
  }
  return found;
}

void find_borders(std::vector<std::int64_t>& found, const ir::Graph& mask,
                  std::span<const ir::NodeId> comparisons, const passes::Bounds& bounds,
                  const passes::Box& box) {
  found.clear();
  const passes::Counts counts = passes::counts_of(box);
  for (const ir::NodeId id : comparisons) {
    const ir::Node& node = mask[id];
    const passes::IntegerRange difference = passes::subtract(
        bounds.of(node.operands[0]).integer, bounds.of(node.operands[1]).integer, counts);
    if (!difference.is_affine) continue;
    const passes::Affine& form = difference.affine;
    const std::int64_t slope = form.coefficient[index(Variable::kv)];
    if (slope == 0) continue;
    // Over all queries of the box.
    std::int64_t least = form.constant, most = form.constant;
    for (std::size_t v = 0; v < passes::variables; ++v) {
      if (v == index(Variable::kv)) continue;
      const std::int64_t reach = form.coefficient[v] * (counts[v] - 1);
      least += std::min<std::int64_t>(reach, 0);
      most += std::max<std::int64_t>(reach, 0);
    }
    add_changes(found, node.op, least, slope, box.kv);
    if (most != least) add_changes(found, node.op, most, slope, box.kv);
  }
  std::ranges::sort(found);
  const auto [first, last] = std::ranges::unique(found);
  found.erase(first, last);
}

}  // namespace treadle::layout
