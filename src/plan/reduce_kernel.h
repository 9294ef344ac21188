// Sums over the queries of a group of tiles: C[k][d] += sum_t sum_q A[t][k][q] * B[t][q][d], which
// is dV (A = P, B = dO) and dK (A = dS, B = Q).
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "plan/target.h"
#include "plan/tile_plan.h"

namespace treadle::plan {

struct ReduceArgs {
  const void* a = nullptr;  // [tiles][a_rows][width]
  const void* b = nullptr;  // [tiles][width][length]
  void* c = nullptr;        // [rows][length]
  std::int64_t rows = 0;    // a multiple of rows_at_once()
  std::int64_t tiles = 0;
};

struct ReduceSpec {
  using Args = ReduceArgs;

  Target target;
  DType compute = DType::f32;
  std::int64_t width = 0;   // queries of a tile
  std::int64_t a_rows = 0;  // room for keys in A
  std::int64_t length = 0;  // of a row of B and C: a multiple of the lanes
  // Elements of A that are -0 add nothing, not even 0 * inf.
  bool skip_hidden = false;

  [[nodiscard]] int vectors() const;  // of a row, whose sums are in registers at once
  [[nodiscard]] int rows_at_once() const;
  bool operator==(const ReduceSpec&) const = default;
};

// The sums over queries of such tiles, for rows of `length` elements.
ReduceSpec plan_reduce(const TilePlan& plan, std::int64_t length);

// Rows of B and C are padded to whole vectors.
std::int64_t padded(const TilePlan& plan, std::int64_t length);
// Rows of a block of P or dS, with room for whole steps of the sums.
std::int64_t block_rows(const TilePlan& plan);

base::Key key(const ReduceSpec& spec);

}  // namespace treadle::plan
