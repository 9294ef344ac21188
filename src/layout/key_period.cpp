// Reads moduli off a mask.
//
// In: a mask, a number of keys. Out: what remainders of keys repeat after.
#include "layout/key_period.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "layout/division.h"

namespace treadle::layout {
namespace {

using ir::Node;
using ir::Op;

// Fewer periods than these are not worth a look, and in longer ones residues are too many.
constexpr std::int64_t fewest_periods = 4;
constexpr std::int64_t longest = 4096;

}  // namespace

std::int64_t key_period(const ir::Graph& mask, std::int64_t keys) {
  const std::int64_t most = std::min(longest, keys / fewest_periods);
  std::int64_t period = 1;
  // How many keys it takes until a node that depends on the key moves on by one; 0 if it does not
  // depend on it.
  ir::PerNode<std::int64_t> unit(mask.size());
  for (ir::NodeId id = 0; id < mask.size(); ++id) {
    const Node& node = mask[id];
    unit[id] = node.op == Op::input && node.input == ir::Input::kv ? 1 : 0;
    for (const ir::NodeId operand : node.operands) unit[id] = std::max(unit[id], unit[operand]);
    const std::optional<Division> division = division_of(mask, node);
    if (!division || unit[division->of] == 0 || division->number > most) continue;
    const std::int64_t found = unit[division->of] * division->number;
    if (!division->remainder) unit[id] = std::min(found, keys);
    if (!division->remainder || found > most) continue;
    const std::int64_t both = std::lcm(period, found);
    period = both <= most ? both : std::max(period, found);
  }
  return period;
}

}  // namespace treadle::layout
