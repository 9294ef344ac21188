// The two products of a decode kernel.
//
//   multiply_keys(memory);        // scores[row][key] = sum_d K[key][d] q[row][d]
//   ...                           // scores become weights
//   add_values(memory);           // O[row] += sum_k weight V[k], l[row] += sum_k weight
//
// Keys are in the lanes of scores, elements of a value in those of O. Every sum has one accumulator and
// the order of the forward kernel's: scores over d ascending, O and l over keys ascending.
#pragma once

#include "emit/llvm/decode_memory.h"

namespace treadle::emit::llvm {

void multiply_keys(DecodeMemory& memory);  // src/emit/llvm/decode_scores.cpp
void add_values(DecodeMemory& memory);     // src/emit/llvm/decode_values.cpp
// l of a row, from weights. add_values() does it for kernels that do not drop weights.
void add_weights(DecodeMemory& memory, Value* row);

}  // namespace treadle::emit::llvm
