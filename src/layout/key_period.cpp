// Reads moduli off a mask.
//
// In: a mask, a number of keys. Out: what remainders of keys repeat after.
#include "layout/key_period.h"

#include <algorithm>
#include <bit>
#include <numeric>

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
    if (node.operands.size() != 2 || unit[node.operands[0]] == 0) continue;
    const Node& right = mask[node.operands[1]];
    if (right.op != Op::constant || right.type != ir::Type::integer) continue;
    const std::int64_t number = right.integer();
    if (number < 1 || number > most) continue;
    const std::int64_t before = unit[node.operands[0]];
    if (node.op == Op::floor_div) unit[id] = std::min(before * number, keys);
    if (node.op == Op::shift_right && number < 32) unit[id] = std::min(before << number, keys);
    // x & 63 is x % 64.
    const bool low_bits = std::has_single_bit(static_cast<std::uint64_t>(number) + 1);
    const std::int64_t modulus = node.op == Op::mod                   ? number
                                 : node.op == Op::bit_and && low_bits ? number + 1
                                                                      : 1;
    if (modulus == 1) continue;
    const std::int64_t found = before * modulus;
    if (found > most) continue;
    const std::int64_t both = std::lcm(period, found);
    period = both <= most ? both : std::max(period, found);
  }
  return period;
}

}  // namespace treadle::layout
