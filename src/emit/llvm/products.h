// The products of all kernels: memory in, memory out, in floats of the builder's compute type.
//
//   multiply   C[k][q]  = sum_d A[k][d] B[d][q]               S^T = K Q^T       dP^T = V dO^T
//   add        C[d][q] += sum_k A[k][d] B[k][q]               O^T += V^T P^T    dQ^T += K^T dS^T
//   reduce     C[k][d] += sum_t sum_q A[t][k][q] B[t][q][d]   dV += P dO        dK += dS Q
//
// Every element of C is one chain of multiply-adds, in ascending order of the index that is summed
// over, so its bits do not depend on the register blocking. How the sums are formed is known here
// alone: a form for a matrix unit (AMX, tensor cores) takes the place of these three functions.
#pragma once

#include <cstdint>
#include <functional>

#include "emit/llvm/builder.h"
#include "emit/llvm/kernel_function.h"
#include "plan/reduce_kernel.h"
#include "plan/tile_plan.h"

namespace treadle::emit::llvm {

// Operands for one tile of queries and one block of keys. Rows are contiguous; those of B and C are
// as wide as the tile.
struct TileProduct {
  Value* a = nullptr;     // [keys][dim]
  Value* b = nullptr;     // multiply: [dim][width]; add: [keys][width]
  Value* c = nullptr;     // multiply: [keys][width]; add: [dim][width]
  Value* keys = nullptr;  // how many, i64
  std::int64_t dim = 0;
  std::function<void()> meanwhile = {};  // emits what else is to be done every few steps
};

// Sees vector v of every row of C when it is stored, still in a register; some rows come twice. A
// product whose sums are not in vector registers would load each row of C again and call it then.
using Epilogue = std::function<void(Value* result, int v)>;

void multiply(Builder& build, const plan::TilePlan& plan, const TileProduct& product,
              const Epilogue& epilogue = {});

// With skip_hidden, elements of B that are -0 add nothing, not even 0 * inf.
void add(Builder& build, const plan::TilePlan& plan, const TileProduct& product,
         bool skip_hidden = false);

// Like add(), but what the keys of each chunk give is summed on its own, from zero, before it is added
// to C: chunk i ends before key ends[i] (i32), and they cover all keys.
void add_chunks(Builder& build, const plan::TilePlan& plan, const TileProduct& product, Value* ends,
                Value* chunks);

// The operands are the members of the kernel's arguments. With spec.skip_hidden, elements of A that
// are -0 add nothing.
void reduce(Builder& build, const plan::ReduceSpec& spec, const Arguments<plan::ReduceArgs>& args);

}  // namespace treadle::emit::llvm
