// Rows of queries transposed to lanes, and lanes back to rows.
//
//   rows  [width][row]     the elements of a query are contiguous; rows are `row` elements apart
//   lanes [length][width]  the queries of an element are
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "plan/target.h"

namespace treadle::plan {

struct TransposeArgs {
  const void* source = nullptr;
  void* target = nullptr;
  const void* factors = nullptr;  // [width]: what each query's elements are multiplied with
  // To rows: becomes 1 if some element is infinite or NaN, else stays as it is. Null: nobody asks.
  std::int32_t* nonfinite = nullptr;
};

struct TransposeSpec {
  using Args = TransposeArgs;

  Target target;
  DType compute = DType::f32;
  std::int64_t width = 0;  // whole vectors
  std::int64_t length = 0, row = 0;
  bool to_rows = false;  // else to lanes

  bool operator==(const TransposeSpec&) const = default;
};

base::Key key(const TransposeSpec& spec);

}  // namespace treadle::plan
