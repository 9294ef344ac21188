// Scalars, which are captures of rank 0, as the constants that they hold.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "treadle/view.h"

namespace treadle::passes {

// x % y, x // y, and their forms for powers of two: x & y, x >> y.
bool divides(ir::Op op);

enum class Scalars : std::uint8_t {
  all,
  divisors,  // those that something is divided by
};
// The graph with the values of its scalars, simplified. `memory` is bound to its slots. Nothing if
// it would divide by the constant 0: whether that is poison is for each pair to say.
std::optional<ir::Graph> with_scalars(const ir::Graph& graph, std::span<const ConstView> memory,
                                      Scalars which = Scalars::all);

// The memory of a graph's slots, which are some of those that `memory` is bound to.
std::vector<ConstView> memory_of(const ir::Graph& graph, std::span<const ir::Slot> slots,
                                 std::span<const ConstView> memory);

}  // namespace treadle::passes
