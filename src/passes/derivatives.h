// The derivative table: one row per operation.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace treadle::passes {

// `node` computed node = op(operands) on floats; `grad` is its gradient. Gives the gradient of each
// operand; -1 where it is zero everywhere. Only rows of operands that are floats matter; where()
// and loads are derive's own business.
std::vector<ir::NodeId> slopes(ir::Builder& make, ir::NodeId node, ir::NodeId grad);

}  // namespace treadle::passes
