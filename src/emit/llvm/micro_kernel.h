// The one loop of multiply-adds, for products.cpp alone: C[r][lanes] += broadcast A[r][k] *
// B[k][lanes].
//
// C stays in registers while k runs. k ascends and every element of C has one chain of additions,
// so its bits do not depend on how many rows and vectors are in registers at once.
#pragma once

#include <functional>

#include "emit/llvm/builder.h"

namespace treadle::emit::llvm {

struct MicroKernel {
  int rows = 1, vectors = 1;  // of C
  Value* a = nullptr;         // A[r][k] is element r * a_row + k * a_step
  std::int64_t a_row = 0, a_step = 1;
  Value* b = nullptr;  // B[k] begins at element k * b_step
  std::int64_t b_step = 0;
  Value* depth = nullptr;  // how many k, i64; a constant is unrolled further
  // Elements of A or lanes of B that hold -0 and add nothing, not even 0 * inf.
  enum class Hidden { none, in_a, in_b };
  Hidden hidden = Hidden::none;
  // Emits what else is to be done every few steps, if anything.
  std::function<void()> meanwhile;

  // The position of vector v of row r among the values of C.
  [[nodiscard]] std::size_t position(int r, int v) const {
    return static_cast<std::size_t>(r) * static_cast<std::size_t>(vectors) +
           static_cast<std::size_t>(v);
  }
};

// In and out: C, row by row, `vectors` values each.
Values accumulate(Builder& build, const MicroKernel& kernel, Values c);

}  // namespace treadle::emit::llvm
