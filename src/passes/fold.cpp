// Folds operations on constants.
//
// In: an operation and constants. Out: a constant, or nothing. The interpreter computes it, so what
// an operation means is defined once.
#include "passes/fold.h"

#include <algorithm>
#include <cmath>

#include "ir/interpret.h"

namespace treadle::passes {

using ir::NodeId;
using ir::Op;
using ir::Type;

std::optional<NodeId> fold(ir::Builder& make, Op op, const std::vector<NodeId>& operands) {
  const auto constant = [&](NodeId id) { return make[id].op == Op::constant; };
  if (operands.empty() || op == Op::load || !std::ranges::all_of(operands, constant))
    return std::nullopt;

  const NodeId node = make.apply(op, operands);
  if (make[node].op == Op::constant) return node;
  const ir::Graph graph = make.finish({node});
  ir::Interpreter<double> wide(graph, {});
  ir::Interpreter<float> narrow(graph, {});
  wide({}, 1);
  narrow({}, 1);
  switch (graph.output_type()) {
    case Type::real: {
      const double value = wide.reals(0)[0];
      const float rounded = narrow.reals(0)[0];
      const bool both_nan = std::isnan(value) && std::isnan(rounded);
      const bool agree = std::bit_cast<std::uint32_t>(static_cast<float>(value)) ==
                         std::bit_cast<std::uint32_t>(rounded);
      if (!both_nan && !agree) return std::nullopt;
      return make.real(value);
    }
    case Type::integer:
      if (wide.integers(0)[0] != narrow.integers(0)[0]) return std::nullopt;
      return make.integer(wide.integers(0)[0]);
    case Type::boolean:
      if (wide.booleans(0)[0] != narrow.booleans(0)[0]) return std::nullopt;
      return make.boolean(wide.booleans(0)[0] != 0);
  }
  return std::nullopt;
}

}  // namespace treadle::passes
