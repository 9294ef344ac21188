// Rows of queries turned into lanes, and lanes back into rows.
//
//   rows  [width][row]     the elements of a query lie side by side; `row` elements are between two
//   lanes [length][width]  the queries of an element do
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "emit/llvm/module.h"
#include "plan/target.h"

namespace treadle::emit {

struct FlipArgs {
  const void* source = nullptr;
  void* target = nullptr;
  const void* factors = nullptr;  // [width]: what each query's elements are multiplied with
};

using FlipKernel = void(const FlipArgs*);

struct FlipSpec {
  plan::Target target;
  DType compute = DType::f32;
  std::int64_t width = 0;  // whole vectors
  std::int64_t length = 0, row = 0;
  bool to_rows = false;  // else to lanes
};

base::Hash key(const FlipSpec& spec);
Module emit_flip(const FlipSpec& spec);

}  // namespace treadle::emit
