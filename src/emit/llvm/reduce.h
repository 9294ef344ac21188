// Sums over the queries of a group of tiles: C[k][d] += sum_t sum_q A[t][k][q] * B[t][q][d], which
// is dV (A = P, B = dO) and dK (A = dS, B = Q).
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "emit/llvm/module.h"
#include "plan/target.h"

namespace treadle::emit {

struct ReduceArgs {
  const void* a = nullptr;  // [tiles][a_rows][width]
  const void* b = nullptr;  // [tiles][width][length]
  void* c = nullptr;        // [rows][length]
  std::int64_t rows = 0;    // a multiple of rows_at_once()
  std::int64_t tiles = 0;
};

using ReduceKernel = void(const ReduceArgs*);

struct ReduceSpec {
  plan::Target target;
  DType compute = DType::f32;
  std::int64_t width = 0;   // queries of a tile
  std::int64_t a_rows = 0;  // room for keys in A
  std::int64_t length = 0;  // of a row of B and C: a multiple of the lanes

  [[nodiscard]] int vectors() const;  // of a row, worked on at once
  [[nodiscard]] int rows_at_once() const;
};

base::Hash key(const ReduceSpec& spec);
Module emit_reduce(const ReduceSpec& spec);

}  // namespace treadle::emit
