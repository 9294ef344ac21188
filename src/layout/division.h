// Divisions by constants in a mask: what suggests query orders and periods of keys.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace treadle::layout {

struct Division {
  ir::NodeId of = 0;        // what is divided
  bool remainder = false;   // else the quotient
  std::int64_t number = 1;  // at least 1
};

// x % 64 and x & 63, x // 64 and x >> 6; nothing for other nodes.
inline std::optional<Division> division_of(const ir::Graph& mask, const ir::Node& node) {
  using ir::Op;
  if (node.operands.size() != 2) return std::nullopt;
  const ir::Node& right = mask[node.operands[1]];
  if (right.op != Op::constant || right.type != ir::Type::integer) return std::nullopt;
  const ir::NodeId of = node.operands[0];
  const std::int64_t number = right.integer();
  if (number < 1) return std::nullopt;
  if (node.op == Op::mod) return Division{of, true, number};
  if (node.op == Op::floor_div) return Division{of, false, number};
  if (node.op == Op::shift_right && number < 32)
    return Division{of, false, std::int64_t{1} << number};
  const bool low_bits = std::has_single_bit(static_cast<std::uint64_t>(number) + 1);
  if (node.op == Op::bit_and && low_bits) return Division{of, true, number + 1};
  return std::nullopt;
}

}  // namespace treadle::layout
