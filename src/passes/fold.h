// Operations on constants.
#pragma once

#include <optional>

#include "ir/builder.h"

namespace treadle::passes {

// The operation's value if all operands are constants and fp32 and fp64 evaluation agree on one
// constant for it: 0.5 + 0.25 folds; 0.3 + 0.4 does not, because fp32 rounds the operands first.
std::optional<ir::NodeId> fold(ir::Builder& make, ir::Op op,
                               const std::vector<ir::NodeId>& operands);

}  // namespace treadle::passes
