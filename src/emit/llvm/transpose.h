// Transposing in registers.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit {

// As many vectors as each has elements, a power of two: element i of result j is element j of row
// i.
Values transpose(Builder& build, const Values& rows);

}  // namespace treadle::emit
