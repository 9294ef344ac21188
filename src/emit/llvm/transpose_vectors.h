// Transposing in registers.
#pragma once

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

// As many rows as each has elements, a power of two: element i of result j is element j of row i.
Values transpose_vectors(Builder& build, const Values& rows);

}  // namespace treadle::emit::llvm
