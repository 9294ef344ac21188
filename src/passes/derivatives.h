// The table of derivatives: one row per operation.
//
//   derivatives(make, y, grad)      of y = tanh(x):  {grad * (1 - y * y)}
#pragma once

#include <vector>

#include "ir/builder.h"

namespace treadle::passes {

// The gradients of the operands of `node`, whose own gradient is `grad`; -1 for an operand whose
// gradient is zero everywhere. Only those of float operands mean something. where() and loads are
// left to derive.
std::vector<ir::NodeId> derivatives(ir::Builder& make, ir::NodeId node, ir::NodeId grad);

}  // namespace treadle::passes
